# Gives the target ipex_onednn: oneDNN 3.7 or later for the CPU, with its runtime for a thread pool of the caller's. Looked for in this order, the one taken
# is printed:
#
#   1. the source tree that IPEX_ONEDNN_SOURCE_DIR names
#   2. an installed oneDNN
#   3. the source package of the Debian stable release, through this machine's own apt configuration
#   4. the upstream release archive
#
# What is built from source goes into a cache of the user, keyed by version, options and compiler. Nothing is fetched
# when it is there already.
include_guard()
include(${CMAKE_CURRENT_LIST_DIR}/sources.cmake)

function(ipex_acquire_onednn)
  find_package(OpenMP REQUIRED COMPONENTS CXX)
  if(IPEX_ONEDNN_SOURCE_DIR)
    ipex_onednn_source_version(${IPEX_ONEDNN_SOURCE_DIR} version)
    message(STATUS "ipex: oneDNN ${version} from IPEX_ONEDNN_SOURCE_DIR=${IPEX_ONEDNN_SOURCE_DIR}")
    ipex_onednn_cached(${version} "${IPEX_ONEDNN_SOURCE_DIR}" prefix)
    ipex_build_onednn(${IPEX_ONEDNN_SOURCE_DIR} ${prefix})
    ipex_onednn_target(${prefix} ${version} IPEX_ONEDNN_SOURCE_DIR)
    return()
  endif()

  find_package(dnnl 3.7 CONFIG QUIET)
  if(dnnl_FOUND AND DNNL_CPU_THREADING_RUNTIME STREQUAL "THREADPOOL")
    message(STATUS "ipex: oneDNN ${dnnl_VERSION} installed in ${dnnl_DIR}")
    set(IPEX_ONEDNN_VERSION ${dnnl_VERSION} CACHE INTERNAL "")
    set(IPEX_ONEDNN_ORIGIN installed CACHE INTERNAL "")
    string(REGEX MATCH "^3\\.([0-9]+)" _ ${dnnl_VERSION})
    add_library(ipex_onednn INTERFACE)
    target_link_libraries(ipex_onednn INTERFACE DNNL::dnnl OpenMP::OpenMP_CXX)
    # Its headers under a name of our own: compilers look into /usr/include last, after torch's, whatever they are told.
    get_target_property(include DNNL::dnnl INTERFACE_INCLUDE_DIRECTORIES)
    file(GLOB headers ${include}/dnnl*.h* ${include}/oneapi)
    foreach(header IN LISTS headers)
      get_filename_component(name ${header} NAME)
      file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/onednn-include)
      file(CREATE_LINK ${header} ${CMAKE_BINARY_DIR}/onednn-include/${name} SYMBOLIC)
    endforeach()
    target_include_directories(ipex_onednn INTERFACE ${CMAKE_BINARY_DIR}/onednn-include)
    target_compile_definitions(ipex_onednn INTERFACE IPEX_ONEDNN_VERSION_MINOR=${CMAKE_MATCH_1}
      IPEX_ONEDNN_IS_EXACT=0 IPEX_ONEDNN_HAS_GEMM=1)
    return()
  endif()

  foreach(origin IN ITEMS debian upstream)
    set(version ${IPEX_ONEDNN_${origin}_VERSION})
    ipex_onednn_cached(${version} ${origin} prefix)
    if(EXISTS ${prefix}/complete)
      message(STATUS "ipex: oneDNN ${version} from the cache, ${prefix}")
      ipex_onednn_target(${prefix} ${version} ${origin})
      return()
    endif()
  endforeach()

  foreach(origin IN ITEMS debian upstream)
    cmake_language(CALL ipex_fetch_onednn_${origin} source reason)
    if(NOT reason)
      set(version ${IPEX_ONEDNN_${origin}_VERSION})
      message(STATUS "ipex: oneDNN ${version} from ${IPEX_ONEDNN_${origin}_NAME}")
      ipex_onednn_cached(${version} ${origin} prefix)
      ipex_build_onednn(${source} ${prefix})
      ipex_onednn_target(${prefix} ${version} ${origin})
      return()
    endif()
    message(STATUS "ipex: no oneDNN from ${IPEX_ONEDNN_${origin}_NAME}: ${reason}")
  endforeach()
  message(FATAL_ERROR "ipex: expected oneDNN 3.7 or later, found none by any of the ways above. "
                      "Unpack a release of it and set IPEX_ONEDNN_SOURCE_DIR to the folder.")
endfunction()

function(ipex_onednn_source_version source result)
  file(READ ${source}/CMakeLists.txt text)
  if(NOT text MATCHES "PROJECT_VERSION \"([0-9.]+)\"")
    message(FATAL_ERROR "ipex: expected a oneDNN source tree in ${source}, found no version in its CMakeLists.txt.")
  endif()
  set(${result} ${CMAKE_MATCH_1} PARENT_SCOPE)
endfunction()

# The folder of the cache for this version, from this origin, with these options and this compiler.
function(ipex_onednn_cached version origin result)
  if(DEFINED ENV{XDG_CACHE_HOME})
    set(cache $ENV{XDG_CACHE_HOME}/ipex)
  else()
    set(cache $ENV{HOME}/.cache/ipex)
  endif()
  file(SHA256 ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/CMakeLists.txt options)
  file(SHA256 ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/changes.cmake changes)
  string(SHA256 key "${origin};${options};${changes};${CMAKE_CXX_COMPILER_ID};${CMAKE_CXX_COMPILER_VERSION};${CMAKE_SYSTEM_PROCESSOR}")
  string(SUBSTRING ${key} 0 16 key)
  set(${result} ${cache}/onednn-${version}-${key} PARENT_SCOPE)
endfunction()

function(ipex_build_onednn source prefix)
  get_filename_component(cache ${prefix} DIRECTORY)
  file(MAKE_DIRECTORY ${cache})
  file(LOCK ${cache} DIRECTORY GUARD FUNCTION)
  if(EXISTS ${prefix}/complete)
    return()
  endif()
  message(STATUS "ipex: building oneDNN once into ${prefix}; this takes some minutes")
  set(build ${CMAKE_BINARY_DIR}/onednn-build)
  ipex_run(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_FUNCTION_LIST_DIR} -B ${build} -G ${CMAKE_GENERATOR}
    -D CMAKE_MAKE_PROGRAM=${CMAKE_MAKE_PROGRAM} -D CMAKE_BUILD_TYPE=Release -D CMAKE_INSTALL_PREFIX=${prefix} -D CMAKE_INSTALL_LIBDIR=lib
    -D CMAKE_C_COMPILER=${CMAKE_C_COMPILER} -D CMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER}
    -D CMAKE_POSITION_INDEPENDENT_CODE=ON -D IPEX_ONEDNN_SOURCE=${source})
  cmake_host_system_information(RESULT cores QUERY NUMBER_OF_LOGICAL_CORES)
  ipex_run(${CMAKE_COMMAND} --build ${build} --parallel ${cores})
  ipex_run(${CMAKE_COMMAND} --install ${build})
  file(TOUCH ${prefix}/complete)
  file(REMOVE_RECURSE ${build})
endfunction()

function(ipex_run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE failed)
  if(failed)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "ipex: building oneDNN failed in: ${command}")
  endif()
endfunction()

function(ipex_onednn_target prefix version origin)
  string(REGEX MATCH "^3\\.([0-9]+)" _ ${version})
  add_library(ipex_onednn STATIC IMPORTED GLOBAL)
  set_target_properties(ipex_onednn PROPERTIES
    IMPORTED_LOCATION ${prefix}/lib/libdnnl.a
    INTERFACE_INCLUDE_DIRECTORIES ${prefix}/include
    INTERFACE_COMPILE_DEFINITIONS "IPEX_ONEDNN_VERSION_MINOR=${CMAKE_MATCH_1};IPEX_ONEDNN_IS_EXACT=1;IPEX_ONEDNN_HAS_GEMM=0"
    INTERFACE_LINK_LIBRARIES "OpenMP::OpenMP_CXX;${CMAKE_DL_LIBS}")
  # It becomes part of our library, and its licence part of our package.
  file(GLOB IPEX_ONEDNN_LICENSES ${prefix}/share/doc/dnnl/LICENSE ${prefix}/share/doc/dnnl/THIRD-PARTY-PROGRAMS)
  set(IPEX_ONEDNN_LICENSES ${IPEX_ONEDNN_LICENSES} CACHE INTERNAL "")
  set(IPEX_ONEDNN_VERSION ${version} CACHE INTERNAL "")
  set(IPEX_ONEDNN_ORIGIN ${origin} CACHE INTERNAL "")
endfunction()

ipex_acquire_onednn()
