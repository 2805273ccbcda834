#!/usr/bin/env bash
# What only a real GPU can show. Prints a report; needs no root and no toolkit, and takes under ten minutes.
#
#   native/gpu/check.sh path/to/libvgpu.so [limit in MiB]
#
# Each step says what was found and what was expected; the script ends with 1 when one was not as expected.
set -u

library=${1:?usage: check.sh path/to/libvgpu.so [limit in MiB]}
limit_mib=${2:-4096}
library=$(realpath "$library")
work=$(mktemp -d)
failures=0
trap 'rm -rf "$work"' EXIT

say() { printf '%-44s %s\n' "$1" "$2"; }
expect() { # name, found, expected
    if [ "$2" = "$3" ]; then say "$1" "$2"; else
        say "$1" "found $2, expected $3"
        failures=$((failures + 1))
    fi
}
limited() {
    timeout 120 env LD_PRELOAD="$library" CUDA_DEVICE_MEMORY_LIMIT="${limit_mib}m" \
        CUDA_DEVICE_MEMORY_SHARED_CACHE="$work/cache" "$@"
}
has() { timeout 60 python3 -c "import $1" >/dev/null 2>&1; }

say "driver" "$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader | head -1)"
expect "nvidia-smi shows the limit" \
    "$(limited nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits | head -1)" "$limit_mib"

# 1: dlsym and cuGetProcAddress give the same address for a hooked name.
cat >"$work/addresses.py" <<'PYTHON'
import ctypes, re, sys
driver = ctypes.CDLL("libcuda.so.1")
differ = []
for symbol, base, version, per_thread in re.findall(r"^(?:HOOK|LAUNCH)\((\w+), (\w+), (\d+), ([01])", open(sys.argv[1]).read(), re.M):
    found, status = ctypes.c_void_p(), ctypes.c_int()
    if not hasattr(driver, symbol):
        continue
    result = driver.cuGetProcAddress_v2(base.encode(), ctypes.byref(found), int(version), ctypes.c_uint64(2 if per_thread == "1" else 1), ctypes.byref(status))
    if result or found.value != ctypes.cast(getattr(driver, symbol), ctypes.c_void_p).value:
        differ.append(symbol)
print(" ".join(differ) or "all equal")
PYTHON
expect "dlsym and cuGetProcAddress agree" \
    "$(timeout 60 python3 "$work/addresses.py" "$(dirname "$0")/../src/hooks.def")" "all equal"

# 2: what a context costs, and how far the books are from the driver.
cat >"$work/context.py" <<'PYTHON'
import ctypes
driver = ctypes.CDLL("libcuda.so.1")
driver.cuInit(0)
context, free, total = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
driver.cuCtxSetCurrent(context)
def info():
    driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
    return free.value, total.value
before = info()
address, held = ctypes.c_uint64(), 0
while driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(64 << 20)) == 0:
    held += 64
print(before[1] >> 20, held)
PYTHON
expect "plain allocations up to the limit" \
    "$(limited python3 "$work/context.py" 2>/dev/null)" "$limit_mib $((limit_mib / 64 * 64))"
timeout 60 python3 -c "
import ctypes, subprocess, os
d = ctypes.CDLL('libcuda.so.1'); d.cuInit(0)
c = ctypes.c_void_p(); d.cuDevicePrimaryCtxRetain(ctypes.byref(c), 0)
print(subprocess.run(['nvidia-smi', '--query-compute-apps=pid,used_memory', '--format=csv,noheader'], capture_output=True, text=True).stdout.strip() or 'no process is listed')
" | while read -r line; do say "a context alone, by NVML" "$line"; done

# 3: frameworks allocate to the limit, and say "out of memory" in their own words.
torch_step() { # name, allocator settings
    expect "torch, $1" "$(limited env PYTORCH_CUDA_ALLOC_CONF="$2" python3 -c "
import torch
held, step = [], 64 << 20
try:
    while True: held.append(torch.empty(step, dtype=torch.uint8, device='cuda'))
except torch.cuda.OutOfMemoryError:
    print('out of memory within the limit' if len(held) * 64 <= $limit_mib else 'beyond the limit')
" 2>/dev/null)" "out of memory within the limit"
}
if has torch; then
    torch_step "default allocator" ""
    torch_step "expandable segments" "expandable_segments:True"
    torch_step "cudaMallocAsync" "backend:cudaMallocAsync"
    expect "torch, captured graph" "$(limited python3 -c "
import torch
x = torch.ones(1 << 20, device='cuda'); g = torch.cuda.CUDAGraph()
with torch.cuda.graph(g): y = x * 2
g.replay(); torch.cuda.synchronize(); print(int(y.sum().item()) == 2 << 20)
" 2>/dev/null)" "True"
    expect "torch, one NCCL process" "$(limited env MASTER_ADDR=127.0.0.1 MASTER_PORT=29511 python3 -c "
import torch, torch.distributed as d
d.init_process_group('nccl', rank=0, world_size=1); x = torch.ones(4, device='cuda'); d.all_reduce(x); print(x.sum().item())
" 2>/dev/null)" "4.0"
    for run in none ours; do
        [ "$run" = none ] && prefix=(timeout 120) || prefix=(limited)
        say "torch, matmuls a second, $run" "$("${prefix[@]}" python3 -c "
import time, torch
a = torch.randn(2048, 2048, device='cuda', dtype=torch.float16); torch.cuda.synchronize(); n, t = 0, time.time()
while time.time() - t < 5:
    for _ in range(50): a @ a
    torch.cuda.synchronize(); n += 50
print(int(n / (time.time() - t)))
" 2>/dev/null)"
    done
fi
for module in cupy jax numba; do has "$module" || say "$module" "is not installed: skipped"; done
has cupy && expect "cupy, async pool" "$(limited python3 -c "
import cupy
cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
try: cupy.empty(($limit_mib + 1024) << 20, dtype=cupy.uint8); print('granted')
except cupy.cuda.memory.OutOfMemoryError: print('refused')
" 2>/dev/null)" "refused"

say "result" "$([ "$failures" = 0 ] && echo "all as expected" || echo "$failures not as expected")"
[ "$failures" = 0 ]
