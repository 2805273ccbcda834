/* Call counters, scripted failures, and cuGetProcAddress by the fake's own table. */
#include "fake.h"

#include <string.h>

#define F(symbol, base, version, per_thread) extern char symbol[];
#include "fake.def"
#undef F

static const struct {
    const char* symbol;
    const char* base;
    int version;
    int per_thread;
    void* address;
} functions[FAKE_FUNCTIONS] = {
#define F(symbol, base, version, per_thread) { #symbol, #base, version, per_thread, symbol },
#include "fake.def"
#undef F
};

_Atomic uint64_t fake_counts[FAKE_FUNCTIONS];
_Atomic int fake_failing = -1;
static _Atomic int fail_after;
static _Atomic int fail_code;

static int by_symbol(const char* symbol)
{
    for (int i = 0; i < FAKE_FUNCTIONS; i++)
        if (!strcmp(functions[i].symbol, symbol))
            return i;
    return -1;
}

uint64_t fake_calls(const char* symbol)
{
    int function = by_symbol(symbol);
    return function < 0 ? 0 : atomic_load(&fake_counts[function]);
}

/* From the call after `after` more on, `symbol` fails once with `code`. */
void fake_fail(const char* symbol, int after, CUresult code)
{
    atomic_store(&fail_after, after);
    atomic_store(&fail_code, code);
    atomic_store(&fake_failing, by_symbol(symbol));
}

CUresult fake_scripted(enum fake_function function)
{
    (void)function;
    if (atomic_fetch_sub(&fail_after, 1) > 0)
        return CUDA_SUCCESS;
    atomic_store(&fake_failing, -1);
    return atomic_load(&fail_code);
}

static _Atomic int watched = -1;
static void (*_Atomic watcher)(void);

/* Calls `then` once, in the next call of `symbol`, when its work is done but its caller does not know yet. */
void fake_at_end(const char* symbol, void (*then)(void))
{
    atomic_store(&watcher, then);
    atomic_store(&watched, by_symbol(symbol));
}

CUresult fake_ended(enum fake_function function, CUresult result)
{
    int expected = (int)function;
    if (atomic_compare_exchange_strong(&watched, &expected, -1))
        atomic_load (&watcher)();
    return result;
}

static CUresult look_up(const char* base, void** found, int version, uint64_t flags, int* status)
{
    int wanted = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM ? 1 : 0;
    int best = -1;
    bool is_known = false;
    if (!base || !found || flags > 3)
        return CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < FAKE_FUNCTIONS; i++) {
        if (strcmp(functions[i].base, base) != 0 || functions[i].per_thread > wanted)
            continue;
        is_known = true;
        if (functions[i].version <= version && (best < 0 || functions[i].version >= functions[best].version))
            best = i;
    }
    *found = best < 0 ? NULL : functions[best].address;
    if (status)
        *status = best >= 0 ? CU_GET_PROC_ADDRESS_SUCCESS
            : is_known      ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                            : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return best < 0 ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}

FAKE_EXPORT CUresult fake_get_proc_address(const char* b, void** f, int v, uint64_t fl, int* st) __asm__(
    "cuGetProcAddress_v2");
FAKE_EXPORT CUresult fake_get_proc_address_ptsz(const char* b, void** f, int v, uint64_t fl, int* st) __asm__(
    "cuGetProcAddress_v2_ptsz");
FAKE_EXPORT CUresult fake_get_proc_address_v1(const char* b, void** f, int v, uint64_t fl) __asm__(
    "cuGetProcAddress");

CUresult fake_get_proc_address(const char* base, void** found, int version, uint64_t flags, int* status)
{
    ENTER(cuGetProcAddress_v2);
    return look_up(base, found, version, flags, status);
}

CUresult fake_get_proc_address_ptsz(const char* base, void** found, int version, uint64_t flags, int* status)
{
    ENTER(cuGetProcAddress_v2_ptsz);
    return look_up(
        base, found, version, flags ? flags : CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, status);
}

CUresult fake_get_proc_address_v1(const char* base, void** found, int version, uint64_t flags)
{
    ENTER(cuGetProcAddress);
    return look_up(base, found, version, flags, NULL);
}
