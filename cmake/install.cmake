# SPDX-License-Identifier: Apache-2.0
# `cmake --install`: libraries, headers, the tally command, and the files for pkg-config and
# find_package(tally).
include(CMakePackageConfigHelpers)

# A private link of a static library is passed on to those who link it. Ours to tally_flags only
# carries warnings and sanitizers of this build: no user's business.
get_target_property(static_links tally_static INTERFACE_LINK_LIBRARIES)
list(REMOVE_ITEM static_links "$<LINK_ONLY:tally_flags>")
set_target_properties(tally_static PROPERTIES INTERFACE_LINK_LIBRARIES "${static_links}")

install(TARGETS tally tally_static EXPORT tally_targets)
install(FILES include/tally.h include/tally_extend.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES docs/man/tally.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES docs/man/tally.3 DESTINATION ${CMAKE_INSTALL_MANDIR}/man3)
if(TARGET tally_tool)
  install(TARGETS tally_tool)
endif()

# A manual page for each command, from its help.
find_program(TALLY_PYTHON python3)
mark_as_advanced(TALLY_PYTHON)
if(TARGET tally_tool AND TALLY_PYTHON AND NOT CMAKE_CROSSCOMPILING AND NOT TALLY_SANITIZE)
  set(pages ${PROJECT_BINARY_DIR}/man)
  add_custom_command(OUTPUT ${pages}/written
    COMMAND ${TALLY_PYTHON} -B ${PROJECT_SOURCE_DIR}/docs/man/command_pages.py
      $<TARGET_FILE:tally_tool> ${pages}
    COMMAND ${CMAKE_COMMAND} -E touch ${pages}/written
    DEPENDS tally_tool docs/man/command_pages.py docs/man/tally.1
    COMMENT "Writing manual pages")
  add_custom_target(tally_man ALL DEPENDS ${pages}/written)
  install(DIRECTORY ${pages}/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 FILES_MATCHING PATTERN "*.1")
endif()

# Both descriptions find the prefix from where they lie, so that an installed tree can be moved.
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tally)
install(EXPORT tally_targets NAMESPACE tally:: DESTINATION ${package_dir})
configure_package_config_file(cmake/tally-config.cmake.in
  ${PROJECT_BINARY_DIR}/package/tally-config.cmake
  INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO)
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/package/tally-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES
  ${PROJECT_BINARY_DIR}/package/tally-config.cmake
  ${PROJECT_BINARY_DIR}/package/tally-config-version.cmake
  DESTINATION ${package_dir})

set(pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR} OR IS_ABSOLUTE ${CMAKE_INSTALL_INCLUDEDIR})
  set(pc_prefix ${CMAKE_INSTALL_PREFIX})
  set(pc_libdir ${CMAKE_INSTALL_FULL_LIBDIR})
  set(pc_includedir ${CMAKE_INSTALL_FULL_INCLUDEDIR})
else()
  file(RELATIVE_PATH up /prefix/${pkgconfig_dir} /prefix)
  string(REGEX REPLACE "/$" "" pc_prefix "\${pcfiledir}/${up}")
  set(pc_libdir "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
  set(pc_includedir "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
endif()
configure_file(cmake/tally.pc.in ${PROJECT_BINARY_DIR}/package/tally.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/package/tally.pc DESTINATION ${pkgconfig_dir})
