# In a wheel everything lives in the ipex package; installed by CMake alone it lives under the prefix.
if(SKBUILD)
  set(package ipex/)
else()
  set(package "")
endif()
set(IPEX_EXTENSION_DIR ./${package})
set(IPEX_LIBRARY_DIR ${package}lib)
set(IPEX_INCLUDE_DIR ${package}include)
set(IPEX_CMAKE_DIR ${package}share/cmake/ipex)
set(IPEX_LICENSE_DIR ${package}share/licenses)
set(IPEX_PKG_CONFIG_DIR ${IPEX_LIBRARY_DIR}/pkgconfig)

# In site-packages torch is a neighbour of ipex. Elsewhere the program that links libtorch has it loaded before us.
set(IPEX_LIBRARY_RPATH "$ORIGIN;$ORIGIN/../../torch/lib")
if(SKBUILD)
  set(IPEX_PKG_CONFIG_TORCH \${prefix}/../torch)
else()
  set(IPEX_PKG_CONFIG_TORCH \${prefix}/../libtorch)
endif()
set(IPEX_EXTENSION_RPATH "$ORIGIN/lib;$ORIGIN/../torch/lib")

# Settings that every one of our targets shares.
function(ipex_common_settings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra $<$<BOOL:${IPEX_WARNINGS_AS_ERRORS}>:-Werror>)
  # What is linked statically stays inside: oneDNN, whose weak symbols would bind to those of the oneDNN in libtorch_cpu,
  # and libstdc++ where a toolchain has it so.
  target_link_options(${target} PRIVATE LINKER:--as-needed LINKER:--exclude-libs,ALL)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL SHARED_LIBRARY)
    # Undefined symbols are errors now, not at the first import. (An extension gets Python's from the interpreter.)
    target_link_options(${target} PRIVATE LINKER:-z,defs)
    # Functions of torch are looked up when they are called, so that torch_version.cpp comes before what another torch lacks.
    target_link_options(${target} PRIVATE LINKER:-z,lazy)
  endif()
endfunction()
