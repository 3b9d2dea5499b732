# Gives ipex::torch: torch's headers, and its libraries that compute on the CPU. Used by our build and, installed, by
# find_package(ipex). Gives Torch_DIR and Torch_VERSION too. Where there is no torch it gives nothing.
#
# A torch that was built for CUDA, ROCm or XPU has a CMake configuration that stops where that toolkit is absent. ipex
# needs none of it, and takes the two libraries without asking the configuration. find_package(Torch), before or after,
# is then up to the project that wants the rest.
if(TARGET ipex::torch)
  return()
endif()

# A prefix is torch.utils.cmake_prefix_path, or the root of a libtorch.
find_path(Torch_DIR TorchConfig.cmake HINTS ${CMAKE_PREFIX_PATH} ENV CMAKE_PREFIX_PATH PATH_SUFFIXES Torch share/cmake/Torch)
get_filename_component(_ipex_torch_root "${Torch_DIR}/../../.." ABSOLUTE)
file(GLOB _ipex_torch_devices ${_ipex_torch_root}/lib/libtorch_cuda.so ${_ipex_torch_root}/lib/libtorch_hip.so
     ${_ipex_torch_root}/lib/libtorch_xpu.so)
if(Torch_DIR AND _ipex_torch_devices)
  include(${Torch_DIR}/TorchConfigVersion.cmake)
  set(Torch_VERSION ${PACKAGE_VERSION})
  add_library(ipex::torch INTERFACE IMPORTED)
  target_include_directories(ipex::torch INTERFACE
    ${_ipex_torch_root}/include ${_ipex_torch_root}/include/torch/csrc/api/include)
  target_link_libraries(ipex::torch INTERFACE ${_ipex_torch_root}/lib/libtorch_cpu.so ${_ipex_torch_root}/lib/libc10.so)
else()
  find_package(Torch QUIET)
  if(Torch_FOUND)
    add_library(ipex::torch INTERFACE IMPORTED)
    target_link_libraries(ipex::torch INTERFACE torch)
  endif()
endif()
