#!/usr/bin/env bash
# Runs the kernel tests with real AVX-512 VNNI instructions on a machine that has none: boots a Debian kernel with
# an initramfs of the static tests in the Bochs emulator as an Ice Lake processor. Opt-in, about five minutes long.
#
#     tools/test_in_bochs.sh [work directory, default build/bochs]
#
# Needs Debian 12 with: bochs bochsbios vgabios isolinux syslinux-common xorriso cpio g++ (apt-get install
# --no-install-recommends). The kernel package is downloaded and unpacked, not installed.
set -euo pipefail
cd "$(dirname "$0")/.."
source_root=$PWD
work=$(mkdir -p "${1:-build/bochs}" && cd "${1:-build/bochs}" && pwd)
tests=(test_isa test_digest test_gemm test_attention test_ops)

for command in bochs xorriso cpio g++ apt-get dpkg; do
    command -v "$command" >/dev/null || { echo "$0 needs the command '$command' (see its head)" >&2; exit 2; }
done

cd "$work"
echo "=== building static tests"
flags=(-std=c++17 -O2 -ffp-contract=off -pthread "-I$source_root/native/include" "-I$source_root/native/kernels")
avx2=(-mavx2 -mfma -mf16c)
avx512=("${avx2[@]}" -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni)
kernels=$source_root/native/kernels
g++ "${flags[@]}" -c "$kernels/kernels_scalar.cpp" -o scalar.o
g++ "${flags[@]}" "${avx2[@]}" -c "$kernels/kernels_avx2.cpp" -o avx2.o
g++ "${flags[@]}" "${avx512[@]}" -c "$kernels/kernels_avx512.cpp" -o avx512.o
g++ "${flags[@]}" "${avx512[@]}" -DEDGESEEK_AVXVNNI_AS_AVX512VL -c "$kernels/kernels_avxvnni.cpp" -o avxvnni.o
for name in "${tests[@]}"; do
    g++ "${flags[@]}" -DEDGESEEK_TEST_EVERY_X86_TABLE "-I$source_root/native/tests" -static \
        "$source_root/native/tests/$name.cpp" "$source_root/native/src/isa.cpp" ./*.o -o "$name"
done

echo "=== making a boot disc"
cat >init.cpp <<'INIT'
#include <cstdio>
#include <fcntl.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int, char**, char** environment) {
    mkdir("/dev", 0755);
    mknod("/dev/ttyS0", S_IFCHR | 0600, makedev(4, 64));
    const int console = open("/dev/ttyS0", O_RDWR);
    for (int fd = 0; fd < 3; ++fd) dup2(console, fd);
    const char* tests[][9] = {{"/test_isa"}, {"/test_digest"}, {"/test_gemm"}, {"/test_attention"},
        // All but the rounding of stored halves: Bochs 2.7 rounds vcvtps2ph's ties away from zero (the AVX2 table runs
        // that instruction on real processors).
        {"/test_ops", "quantiz", "rms_norm", "swiglu", "add_adds", "rope", "storing_a_key", "a_nan"}};
    for (auto& arguments : tests) {
        const char* test = arguments[0];
        std::printf("RUN %s\n", test);
        std::fflush(stdout);
        const pid_t child = fork();
        if (child == 0) {
            execve(test, const_cast<char**>(arguments), environment);
            _exit(127);
        }
        int status = 0;
        waitpid(child, &status, 0);
        std::printf("STATUS %s %d\n", test, status);
        std::fflush(stdout);
    }
    std::printf("FINISHED\n");
    std::fflush(stdout);
    sleep(1);
    sync();
    reboot(RB_POWER_OFF);
    for (;;) pause();
}
INIT
rm -rf disc initramfs && mkdir -p disc initramfs
g++ -O1 -static init.cpp -o initramfs/init
for name in "${tests[@]}"; do cp "$name" initramfs/; done
(cd initramfs && find . | cpio --quiet -o -H newc | gzip -1) >disc/initrd.gz
if [ ! -e kernel/boot ]; then
    package=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends:/ {print $2; exit}')
    apt-get download -qq "$package"
    dpkg -x "$package"_*.deb kernel
fi
cp kernel/boot/vmlinuz-* disc/vmlinuz
cp /usr/lib/ISOLINUX/isolinux.bin /usr/lib/syslinux/modules/bios/ldlinux.c32 disc/
# Bochs 2.7 describes the save areas of PKRU and of XSAVES wrongly, and Linux loops in a fault or waits for ever
# with some of the others.
hidden=pku,ospke,aperfmperf,xsaves,xsavec,mwait,fsgsbase,smap,smep,umip,erms,fsrm,invpcid
cat >disc/isolinux.cfg <<CONFIG
default tests
prompt 0
label tests
    kernel /vmlinuz
    initrd /initrd.gz
    append console=ttyS0 quiet mitigations=off apparmor=0 lsm=capability idle=halt nopcid clearcpuid=$hidden
CONFIG
xorriso -as mkisofs -quiet -o boot.iso -b isolinux.bin -c boot.cat -no-emul-boot -boot-load-size 4 \
    -boot-info-table disc 2>/dev/null

echo "=== booting"
cat >bochsrc <<CONFIG
display_library: rfb, options="timeout=0"
config_interface: textconfig
cpu: model=corei7_icelake_u, count=1, ips=100000000, reset_on_triple_fault=0, mwait_is_nop=1
memory: guest=512, host=512
romimage: file=/usr/share/bochs/BIOS-bochs-latest
vgaromimage: file=/usr/share/vgabios/vgabios.bin
ata0-master: type=cdrom, path=boot.iso, status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev=serial.txt
clock: sync=none, time0=local
log: bochs.log
panic: action=report
speaker: enabled=0
CONFIG
rm -f serial.txt
echo continue >debugger.rc  # Debian's bochs stops in its debugger first
bochs -q -f bochsrc -rc debugger.rc >bochs.out 2>&1 &
emulator=$!
trap 'pkill -P "$emulator" 2>/dev/null; kill "$emulator" 2>/dev/null || true' EXIT
limit=$((SECONDS + ${EDGESEEK_BOCHS_SECONDS:-1800}))
while [ $SECONDS -lt $limit ] && kill -0 "$emulator" 2>/dev/null && ! grep -qs FINISHED serial.txt; do sleep 2; done

touch serial.txt
tr -d '\r' <serial.txt | grep -a -v '^\[' || true
for name in "${tests[@]}"; do
    tr -d '\r' <serial.txt | grep -aqx "STATUS /$name 0" || { echo "$name did not pass" >&2; exit 1; }
done
echo "all passed with AVX-512 VNNI instructions under Bochs"
