# Public headers, and the files that make find_package(ipex) and pkg-config work from the wheel and from an installed tree
# alike. Nothing in them names a folder of this machine. find_package(ipex) works from the build tree, too.
include(CMakePackageConfigHelpers)

install(TARGETS ipex_runtime ipex EXPORT ipexTargets LIBRARY DESTINATION ${IPEX_LIBRARY_DIR})
install(DIRECTORY runtime/include/ passes/include/ DESTINATION ${IPEX_INCLUDE_DIR} FILES_MATCHING PATTERN "*.h")
install(EXPORT ipexTargets NAMESPACE ipex:: DESTINATION ${IPEX_CMAKE_DIR})

# A wheel has ours with its metadata: `license-files` in pyproject.toml.
if(NOT SKBUILD)
  install(FILES LICENSE NOTICE DESTINATION ${IPEX_LICENSE_DIR})
endif()
if(IPEX_ONEDNN_LICENSES)
  install(FILES ${IPEX_ONEDNN_LICENSES} DESTINATION ${IPEX_LICENSE_DIR}/onednn)
endif()

configure_package_config_file(cmake/ipexConfig.cmake.in ipexConfig.cmake INSTALL_DESTINATION ${IPEX_CMAKE_DIR})
write_basic_package_version_file(ipexConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ipexConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/ipexConfigVersion.cmake
              cmake/ipexTorch.cmake
        DESTINATION ${IPEX_CMAKE_DIR})

# The build tree: -Dipex_DIR=<build folder>.
export(EXPORT ipexTargets NAMESPACE ipex:: FILE ${CMAKE_CURRENT_BINARY_DIR}/ipexTargets.cmake)
configure_file(cmake/ipexTorch.cmake ipexTorch.cmake COPYONLY)

foreach(name IN ITEMS ipex ipex_runtime)
  configure_file(cmake/${name}.pc.in ${name}.pc @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${name}.pc DESTINATION ${IPEX_PKG_CONFIG_DIR})
endforeach()

# What the binaries hold, for scanners: in a wheel, where PEP 770 wants it.
if(SKBUILD)
  set(origin IPEX_ONEDNN_${IPEX_ONEDNN_ORIGIN})  # without an archive of known content: no file, no hash
  execute_process(
    COMMAND ${Python_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/cmake/sbom.py --output ${CMAKE_CURRENT_BINARY_DIR}/ipex.cdx.json
      --version ${PROJECT_VERSION} --torch ${IPEX_TORCH_SERIES} --onednn ${IPEX_ONEDNN_VERSION}
      "--onednn-purl=${${origin}_PURL}" "--onednn-file=${${origin}_FILE}" "--onednn-sha256=${${origin}_SHA256}"
    RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "ipex: cmake/sbom.py failed.")
  endif()
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ipex.cdx.json DESTINATION ${SKBUILD_METADATA_DIR}/sboms)
endif()

# For C++ alone, as an archive that names the torch that it fits.
if(NOT IPEX_BUILD_PYTHON)
  set(CPACK_GENERATOR TGZ)
  set(CPACK_STRIP_FILES ON)
  set(CPACK_PACKAGE_FILE_NAME ipex-${PROJECT_VERSION}-torch${IPEX_TORCH_SERIES}-linux-${CMAKE_SYSTEM_PROCESSOR})
  include(CPack)
endif()
