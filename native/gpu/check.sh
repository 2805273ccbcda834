#!/usr/bin/env bash
# What only a real GPU can show. Prints a report; needs no root and no toolkit, and takes under ten minutes.
#
#   native/gpu/check.sh path/to/libvgpu.so [limit in MiB] [another interposer to run beside it]
#
# Each step says what was found and, where there is one, what was expected. Ends with 0 when all was as
# expected, with 1 when something was not, and with 2 when nothing could be checked.
set -u

usage="usage: check.sh path/to/libvgpu.so [limit in MiB] [another interposer]"
library=$(realpath -e -- "${1:?$usage}") || exit 2
limit_mib=${2:-4096}
other=${3:+$(realpath -e -- "$3")}
here=$(realpath -- "$(dirname -- "$0")")
failures=0

cannot() { printf 'check.sh: found %s: nothing was checked\n' "$1" >&2 && exit 2; }
command -v python3 >/dev/null || cannot "no python3"
command -v nvidia-smi >/dev/null || cannot "no nvidia-smi, so no NVIDIA driver"
nvidia-smi -L 2>/dev/null | grep -q '^GPU' || cannot "no GPU that nvidia-smi lists"
python3 -c 'import ctypes; ctypes.CDLL("libcuda.so.1")' 2>/dev/null || cannot "no libcuda.so.1"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

say() { printf '%-44s %s\n' "$1" "$2"; }
expect() { # name, found, expected
    if [ "$2" = "$3" ]; then say "$1" "$2"; else
        say "$1" "found ${2:-nothing}, expected $3"
        failures=$((failures + 1))
    fi
}
near() { # name, found, expected, tolerance
    if python3 -c 'import sys; f, e, t = map(float, sys.argv[1:]); sys.exit(abs(f - e) > t)' "${2:-nan}" "$3" "$4" 2>/dev/null
    then say "$1" "$2"; else
        say "$1" "found ${2:-nothing}, expected $3 within $4"
        failures=$((failures + 1))
    fi
}
plain() { timeout 60 "$@" 2>"$work/said"; }
interposed() { # library, variables and command
    local preload=$1
    shift
    timeout 60 env LD_PRELOAD="$preload" CUDA_DEVICE_MEMORY_SHARED_CACHE="$work/cache.$BASHPID" "$@" 2>"$work/said"
}
limited() { interposed "$library" CUDA_DEVICE_MEMORY_LIMIT="${limit_mib}m" "$@"; }
has() { timeout 60 python3 -c "import $1" >/dev/null 2>&1; }

say "GPU" "$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader | head -1)"

# 1: addresses
expect "dlsym and cuGetProcAddress agree" "$(plain python3 "$here/probe.py" addresses "$here/../src/hooks.def")" "all equal"

# 2 and 3: what a context costs, and what NVML says in this container
say "contexts and NVML" "$(plain python3 "$here/probe.py" nvml)"
expect "nvidia-smi shows the limit" \
    "$(limited nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits | head -1)" "$limit_mib"

# 4 and 5: what the driver's calls cost, and how it rounds
say "ns a call" "$(plain python3 "$here/probe.py" costs)"
say "KiB an allocation takes" "$(plain python3 "$here/probe.py" rounding)"

# Memory up to the limit, and 7: the check that vLLM makes at its start
expect "plain allocations up to the limit" \
    "$(limited python3 "$here/probe.py" fill)" "$limit_mib $((limit_mib / 64 * 64))"
expect "free memory after an allocation" "$(limited python3 "$here/probe.py" steady)" "the same"

# 6: the share of compute
share_of() { # library, percent, load, seconds
    interposed "$1" CUDA_DEVICE_SM_LIMIT="$2" GPU_CORE_UTILIZATION_POLICY=force \
        python3 "$here/probe.py" share "$turns" "$3" "$4"
}
turns=$(plain python3 "$here/probe.py" calibrate)
if [ -n "$turns" ]; then
    for load in kernels small graphs big; do
        for percent in 10 25 50 75; do
            near "$percent % of the GPU, $load" "$(share_of "$library" "$percent" "$load" 5)" "$percent" 3
        done
        [ -z "$other" ] || say "50 % of the GPU, $load, the other" "$(share_of "$other" 50 "$load" 5)"
    done
    share_of "$library" 30 kernels 10 >"$work/small" &
    share_of "$library" 70 kernels 10 >"$work/large"
    wait
    say "30 % and 70 % at once, no agent" "$(cat "$work/small") and $(cat "$work/large")"
    near "share without a limit" "$(interposed "$library" python3 "$here/probe.py" share "$turns" kernels 5)" \
        "$(plain python3 "$here/probe.py" share "$turns" kernels 5)" 1
else
    say "share of compute" "no kernel could be started: $(tail -1 "$work/said")"
    failures=$((failures + 1))
fi
say "launches a second, none" "$(plain python3 "$here/probe.py" launch_rate)"
say "launches a second, ours" "$(interposed "$library" python3 "$here/probe.py" launch_rate)"
say "launches a second, ours, 99 %" "$(interposed "$library" CUDA_DEVICE_SM_LIMIT=99 python3 "$here/probe.py" launch_rate)"
[ -z "$other" ] || say "launches a second, the other" "$(interposed "$other" python3 "$here/probe.py" launch_rate)"
pgrep -x nvidia-cuda-mps >/dev/null 2>&1 && say "MPS" "is on: the figures above are with it"

# Frameworks allocate to the limit, and say "out of memory" in their own words.
torch_step() { # name, allocator settings
    expect "torch, $1" "$(limited env PYTORCH_CUDA_ALLOC_CONF="$2" python3 -c "
import torch
held, step = [], 64 << 20
try:
    while True: held.append(torch.empty(step, dtype=torch.uint8, device='cuda'))
except torch.cuda.OutOfMemoryError:
    print('out of memory within the limit' if len(held) * 64 <= $limit_mib else 'beyond the limit')
")" "out of memory within the limit"
}
if has torch; then
    torch_step "default allocator" ""
    torch_step "expandable segments" "expandable_segments:True"
    torch_step "cudaMallocAsync" "backend:cudaMallocAsync"
    expect "torch, captured graph" "$(limited env CUDA_DEVICE_SM_LIMIT=50 python3 -c "
import torch
x = torch.ones(1 << 20, device='cuda'); g = torch.cuda.CUDAGraph()
with torch.cuda.graph(g): y = x * 2
g.replay(); torch.cuda.synchronize(); print(int(y.sum().item()) == 2 << 20)
")" "True"
    expect "torch, one NCCL process" "$(limited env MASTER_ADDR=127.0.0.1 MASTER_PORT=29511 python3 -c "
import torch, torch.distributed as d
d.init_process_group('nccl', rank=0, world_size=1); x = torch.ones(4, device='cuda'); d.all_reduce(x); print(x.sum().item())
")" "4.0"
    say "torch, MiB by the driver beyond its own count" "$(plain python3 -c "
import ctypes, torch
def driver():
    free, total = torch.cuda.mem_get_info(); return (total - free) >> 20
torch.cuda.init(); start = driver()
a = torch.randn(4096, 4096, device='cuda'); first = driver() - (torch.cuda.memory_reserved() >> 20)
a @ a; torch.cuda.synchronize(); print(f'{start} at start, {first} with a tensor, {driver() - (torch.cuda.memory_reserved() >> 20)} after a matmul')
")"
    rate="
import time, torch
a = torch.randn(2048, 2048, device='cuda', dtype=torch.float16); torch.cuda.synchronize(); n, t = 0, time.time()
while time.time() - t < 5:
    for _ in range(50): a @ a
    torch.cuda.synchronize(); n += 50
print(int(n / (time.time() - t)))
"
    say "torch, matmuls a second, none" "$(plain python3 -c "$rate")"
    say "torch, matmuls a second, ours" "$(limited python3 -c "$rate")"
    say "torch, matmuls a second, ours, 50 %" "$(limited env CUDA_DEVICE_SM_LIMIT=50 python3 -c "$rate")"
fi
has cupy && expect "cupy, async pool" "$(limited python3 -c "
import cupy
cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
try: cupy.empty(($limit_mib + 1024) << 20, dtype=cupy.uint8); print('granted')
except cupy.cuda.memory.OutOfMemoryError: print('refused')
")" "refused"
has jax && expect "jax" "$(limited env XLA_PYTHON_CLIENT_PREALLOCATE=false python3 -c "
import jax.numpy as np
try: np.zeros(($limit_mib + 1024) << 20, dtype=np.uint8).block_until_ready(); print('granted')
except Exception as error: print('refused' if 'RESOURCE_EXHAUSTED' in str(error) else error)
")" "refused"
has triton && has torch && expect "triton" "$(limited python3 -c "
import torch, triton, triton.language as tl
x = torch.zeros(1024, device='cuda')
from torch import compile
print(compile(lambda v: v * 2 + 1)(x).sum().item())
")" "1024.0"
for module in torch cupy jax triton; do has "$module" || say "$module" "is not installed: left out"; done

say "result" "$([ "$failures" = 0 ] && echo "all as expected" || echo "$failures not as expected")"
[ "$failures" = 0 ]
