# Finds libtorch: the one that CMAKE_PREFIX_PATH or Torch_DIR names, else the wheel that Python would import.
find_package(Python 3.10 REQUIRED COMPONENTS Interpreter OPTIONAL_COMPONENTS Development.Module)

if(NOT Torch_DIR)
  execute_process(
    COMMAND ${Python_EXECUTABLE} -c "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
    OUTPUT_VARIABLE torch OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(NOT failed)
    list(APPEND CMAKE_PREFIX_PATH ${torch}/share/cmake)
  endif()
endif()
include(ipexTorch)
if(NOT TARGET ipex::torch)
  message(FATAL_ERROR "ipex: expected PyTorch 2.8 or later, found none for ${Python_EXECUTABLE}. "
                      "Install torch there, or pass -DTorch_DIR=<libtorch>/share/cmake/Torch.")
endif()
if(Torch_VERSION VERSION_LESS 2.8)
  message(FATAL_ERROR "ipex: expected PyTorch 2.8 or later, found ${Torch_VERSION}. Upgrade torch.")
endif()
# libtorch keeps its C++ interface within such a series, and not beyond.
string(REGEX MATCH "^[0-9]+\\.[0-9]+" IPEX_TORCH_SERIES ${Torch_VERSION})
message(STATUS "ipex: building against PyTorch ${Torch_VERSION} in ${Torch_DIR}")
