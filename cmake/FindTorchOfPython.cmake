# Finds libtorch: the one that CMAKE_PREFIX_PATH or Torch_DIR names, else the wheel that Python imports.
find_package(Python 3.9 REQUIRED COMPONENTS Interpreter OPTIONAL_COMPONENTS Development.Module)

if(NOT Torch_DIR)
  execute_process(
    COMMAND ${Python_EXECUTABLE} -c "import torch; print(torch.utils.cmake_prefix_path)"
    OUTPUT_VARIABLE torch_prefix OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(NOT failed)
    list(APPEND CMAKE_PREFIX_PATH ${torch_prefix})
  endif()
endif()
find_package(Torch QUIET)
if(NOT Torch_FOUND)
  message(FATAL_ERROR "ipex: expected PyTorch 2.8 or later, found none for ${Python_EXECUTABLE}. "
                      "Install torch there, or pass -DTorch_DIR=<libtorch>/share/cmake/Torch.")
endif()
if(Torch_VERSION VERSION_LESS 2.8)
  message(FATAL_ERROR "ipex: expected PyTorch 2.8 or later, found ${Torch_VERSION}. Upgrade torch.")
endif()
message(STATUS "ipex: building against PyTorch ${Torch_VERSION}")
