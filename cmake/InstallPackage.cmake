# Public headers, and the files that make find_package(ipex) work from the wheel and from an installed tree alike.
include(CMakePackageConfigHelpers)

install(TARGETS ipex_runtime ipex EXPORT ipexTargets LIBRARY DESTINATION ${IPEX_LIBRARY_DIR})
install(DIRECTORY runtime/include/ passes/include/ DESTINATION ${IPEX_INCLUDE_DIR} FILES_MATCHING PATTERN "*.h")
install(EXPORT ipexTargets NAMESPACE ipex:: DESTINATION ${IPEX_CMAKE_DIR})

if(IPEX_ONEDNN_LICENSES)
  install(FILES ${IPEX_ONEDNN_LICENSES} DESTINATION ${IPEX_LICENSE_DIR}/onednn)
endif()

configure_package_config_file(cmake/ipexConfig.cmake.in ipexConfig.cmake INSTALL_DESTINATION ${IPEX_CMAKE_DIR})
write_basic_package_version_file(ipexConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ipexConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/ipexConfigVersion.cmake
              cmake/ipexTorch.cmake
        DESTINATION ${IPEX_CMAKE_DIR})
