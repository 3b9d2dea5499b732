# Gives the target llhttp: Node.js's parser of HTTP/1.1, MIT licence, 9.2.1 or later (requests can be smuggled past older
# ones). Looked for in this order:
#
#   1. the source tree that LLHTTP_SOURCE_DIR names
#   2. an installed one
#   3. the source package of httptools, which holds it, through this machine's own pip configuration
#
# What pip fetched stays in a cache of the user. Nothing is fetched when it is there already.
set(LLHTTP_SOURCE_DIR "" CACHE PATH "A source tree of llhttp: include/llhttp.h and src.")
set(package httptools-0.9.0)
set(sha256 d484ebb7e3a3f3597b0f645fbd1b85633674ca808c1f5ba11c2caf7c66f5c8b6)

set(source ${LLHTTP_SOURCE_DIR})
if(NOT source)
  find_package(PkgConfig QUIET)
  if(PkgConfig_FOUND)
    pkg_check_modules(libllhttp QUIET IMPORTED_TARGET libllhttp>=9.2.1)
  endif()
  if(TARGET PkgConfig::libllhttp)
    message(STATUS "server: llhttp ${libllhttp_VERSION}, installed")
    add_library(llhttp INTERFACE)
    target_link_libraries(llhttp INTERFACE PkgConfig::libllhttp)
    return()
  endif()

  if(DEFINED ENV{XDG_CACHE_HOME})
    set(cache $ENV{XDG_CACHE_HOME}/ipex)
  else()
    set(cache $ENV{HOME}/.cache/ipex)
  endif()
  set(archive ${cache}/${package}.tar.gz)
  set(found "")
  if(EXISTS ${archive})
    file(SHA256 ${archive} found)
  endif()
  if(NOT found STREQUAL sha256)
    string(REPLACE "-" "==" requirement ${package})
    file(WRITE ${CMAKE_BINARY_DIR}/llhttp.txt "${requirement} --hash=sha256:${sha256}\n")
    execute_process(
      COMMAND python3 -m pip download --quiet --no-deps --no-binary httptools --require-hashes
              -r ${CMAKE_BINARY_DIR}/llhttp.txt --dest ${cache}
      RESULT_VARIABLE failed ERROR_VARIABLE reason)
    if(failed)
      message(FATAL_ERROR "server: expected llhttp 9.2.1 or later, found none installed, and pip could not fetch "
                          "${package} (${failed}). Install llhttp, or unpack a release of it and set LLHTTP_SOURCE_DIR "
                          "to the folder.\n${reason}")
    endif()
  endif()
  file(ARCHIVE_EXTRACT INPUT ${archive} DESTINATION ${CMAKE_BINARY_DIR})
  set(source ${CMAKE_BINARY_DIR}/${package}/vendor/llhttp)
endif()
message(STATUS "server: llhttp from ${source}")
add_library(llhttp STATIC ${source}/src/api.c ${source}/src/http.c ${source}/src/llhttp.c)
target_include_directories(llhttp PUBLIC ${source}/include)
