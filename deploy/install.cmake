# What `cmake --install` puts where (component runtime; the C++ client, component dev, has its rules beside it), and the
# Debian package of it by CPack. The manual pages and completions are made from the programs.
set(TP_PROGRAMS tp-coordinator tp-worker tpctl)
set(documents ${PROJECT_BINARY_DIR}/documents)
file(MAKE_DIRECTORY ${documents})
set(files "")
foreach(program ${TP_PROGRAMS})
  add_custom_command(
    OUTPUT ${documents}/${program}.1.gz
    COMMAND ${PROJECT_SOURCE_DIR}/deploy/man.sh $<TARGET_FILE:${program}> ${PROJECT_VERSION} > ${documents}/${program}.1
    COMMAND gzip -9nf ${documents}/${program}.1
    DEPENDS ${program} ${PROJECT_SOURCE_DIR}/deploy/man.sh
    VERBATIM)
  list(APPEND files ${documents}/${program}.1.gz)
endforeach()
add_custom_command(
  OUTPUT ${documents}/tpctl ${documents}/_tpctl
  COMMAND tpctl completion bash > ${documents}/tpctl
  COMMAND tpctl completion zsh > ${documents}/_tpctl
  DEPENDS tpctl
  VERBATIM)
add_custom_target(tp_documents ALL DEPENDS ${files} ${documents}/tpctl ${documents}/_tpctl)

install(TARGETS ${TP_PROGRAMS} RUNTIME DESTINATION bin COMPONENT runtime)
if(TARGET tp_cuda)
  install(TARGETS tp_cuda LIBRARY DESTINATION lib/tensorplane COMPONENT runtime)  # as FindCudaModule looks for it
endif()
install(FILES ${files} DESTINATION share/man/man1 COMPONENT runtime)
install(FILES ${documents}/tpctl DESTINATION share/bash-completion/completions COMPONENT runtime)
install(DIRECTORY proto/tp DESTINATION share/tensorplane/proto COMPONENT runtime FILES_MATCHING PATTERN *.proto)
install(FILES CHANGELOG.md DESTINATION share/doc/tensorplane COMPONENT runtime)
install(FILES deploy/debian/copyright DESTINATION share/doc/tensorplane COMPONENT runtime)
install(DIRECTORY deploy/demo/ DESTINATION share/doc/tensorplane/examples COMPONENT runtime
  FILES_MATCHING PATTERN *.textproto PATTERN mlp.safetensors PATTERN kjv EXCLUDE)
configure_file(${PROJECT_SOURCE_DIR}/deploy/install_prefixed.cmake.in ${PROJECT_BINARY_DIR}/install_prefixed.cmake @ONLY)
install(SCRIPT ${PROJECT_BINARY_DIR}/install_prefixed.cmake COMPONENT runtime)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME tensorplane)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_VENDOR Tensorplane)
set(CPACK_PACKAGE_CONTACT "The Tensorplane authors <maintainers@tensorplane.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "tensor-parallel models as a service")
set(CPACK_PACKAGE_DESCRIPTION
"A coordinator takes model definitions and parallel plans over gRPC, compiles
them to one program for all ranks, and drives workers that hold the shards.
This package holds tp-coordinator, tp-worker and tpctl.")
set(CPACK_SET_DESTDIR ON)  # so that the prefix is /usr where files hold it
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL runtime dev)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME tensorplane)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_DEPENDS passwd)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SUGGESTS "bash-completion, man-db")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA
  ${PROJECT_SOURCE_DIR}/deploy/debian/postinst ${PROJECT_SOURCE_DIR}/deploy/debian/prerm
  ${PROJECT_SOURCE_DIR}/deploy/debian/postrm ${PROJECT_SOURCE_DIR}/deploy/debian/conffiles)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_COMPONENT_DEV_DESCRIPTION "The C++ client: find_package(Tensorplane), target Tensorplane::client.")
set(CPACK_DEBIAN_DEV_PACKAGE_NAME tensorplane-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS  # as TensorplaneConfig.cmake finds them
  "libgrpc++-dev, protobuf-compiler-grpc, libprotobuf-dev, protobuf-compiler, libabsl-dev, libspdlog-dev, libssl-dev, zlib1g-dev")
include(CPack)
