# SPDX-License-Identifier: Apache-2.0
# Debian's cross compiler for 64-bit ARM; tests run under qemu-user. `scripts/setup --ci` installs
# both and unpacks the ARM build of cmocka below build/.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
# The loader and the C library must be of one version: without the library path, the loader would
# prefer a libc6:arm64 that happens to be installed, and threads would hang.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu
    -E LD_LIBRARY_PATH=/usr/aarch64-linux-gnu/lib)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)

# pkg-config sees the unpacked packages and nothing of the machine we build on.
cmake_path(SET tally_sysroot NORMALIZE ${CMAKE_CURRENT_LIST_DIR}/../build/aarch64-sysroot)
set(ENV{PKG_CONFIG_LIBDIR} ${tally_sysroot}/usr/lib/aarch64-linux-gnu/pkgconfig)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${tally_sysroot})
set(ENV{PKG_CONFIG_PATH} "")
