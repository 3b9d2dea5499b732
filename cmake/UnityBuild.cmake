# ipex_unity_build(TARGET [RENAME name...] [SEPARATE source...]): compiles sources of a target sixteen at a time.
#
# Each source by itself costs 2 s for the templates of torch's headers, whatever it holds. RENAME lists the names that many
# sources give to helpers of their own: each source gets its own, by a macro. So headers that use these names must be
# precompiled. SEPARATE lists sources that can't be with others.
function(ipex_unity_build target)
  cmake_parse_arguments(PARSE_ARGV 1 unity "" "" "RENAME;SEPARATE")
  # Names for each source: CMake 3.20.
  if(NOT IPEX_UNITY_BUILD OR CMAKE_VERSION VERSION_LESS 3.20)
    return()
  endif()
  set(rename "#define IPEX_JOIN_(a, b) a##b\n#define IPEX_JOIN(a, b) IPEX_JOIN_(a, b)\n")
  foreach(name IN LISTS unity_RENAME)
    string(APPEND rename "#undef ${name}\n#define ${name} IPEX_JOIN(${name}_, IPEX_SOURCE)\n")
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 16
    UNITY_BUILD_UNIQUE_ID IPEX_SOURCE UNITY_BUILD_CODE_BEFORE_INCLUDE "${rename}")
  set_source_files_properties(${unity_SEPARATE} TARGET_DIRECTORY ${target} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()
