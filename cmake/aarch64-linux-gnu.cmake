# Cross build with Debian's g++-aarch64-linux-gnu; tests run under qemu-user-static. QEMU_CPU in the environment
# chooses the processor: cortex-a72 has no dotprod, cortex-a76 has.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -L /usr/aarch64-linux-gnu)
