/*
 * Finds the driver's functions and decides, by the address that a look-up gave, which of ours replaces it.
 * The driver decides what a caller gets; we only swap that address.
 */
#include "hooks.h"
#include "libc.h"

#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Text in place: each pointer would be an address to relocate in every program that starts. */
struct names {
    char symbol[44];
    char base[40];
    int version;
    int per_thread; /* -1 for NVML */
};

#define HOOK(symbol, base, version, per_thread, impl, params, args) extern int symbol params;
#define LAUNCH(symbol, base, version, per_thread, params, args, stream) extern int symbol params;
#define VIEW(symbol, impl, params, args) extern int symbol params;
#include "hooks.def"
#undef HOOK
#undef LAUNCH
#undef VIEW

static const struct names table[VGPU_HOOKS] = {
#define HOOK(symbol, base, version, per_thread, impl, params, args) { #symbol, #base, version, per_thread },
#define LAUNCH(symbol, base, version, per_thread, params, args, stream)                                      \
    { #symbol, #base, version, per_thread },
#define VIEW(symbol, impl, params, args) { #symbol, "", 0, -1 },
#include "hooks.def"
#undef HOOK
#undef LAUNCH
#undef VIEW
};

static void* const ours[VGPU_HOOKS] = {
#define HOOK(symbol, base, version, per_thread, impl, params, args) (void*)symbol,
#define LAUNCH(symbol, base, version, per_thread, params, args, stream) (void*)symbol,
#define VIEW(symbol, impl, params, args) (void*)symbol,
#include "hooks.def"
#undef HOOK
#undef LAUNCH
#undef VIEW
};

static const char needed[VGPU_NEEDS][40] = {
#define NEED(symbol, params) #symbol,
#include "driver.def"
#undef NEED
};

void* _Atomic vgpu_real[VGPU_HOOKS];
void* _Atomic vgpu_needed[VGPU_NEEDS];
void* _Atomic vgpu_nvml_uuid;
void* _Atomic vgpu_nvml_index;

/*
 * The driver's address of each hooked function, sorted; of CUDA and of NVML.
 * A map is built aside, copied under resolve_lock and published whole by is_mapped; after that it never
 * changes. No lock is held while the loader is asked: another thread may be inside dlopen and wait for us.
 */
struct address {
    uintptr_t driver;
    void* ours;
};
struct map {
    struct address addresses[2 * VGPU_HOOKS];
    size_t count;
    _Atomic bool is_mapped;
};
static struct map cuda_map;
static struct map nvml_map;
static pthread_mutex_t resolve_lock = PTHREAD_MUTEX_INITIALIZER;

static int by_driver(const void* left, const void* right)
{
    uintptr_t a = ((const struct address*)left)->driver;
    uintptr_t b = ((const struct address*)right)->driver;
    return a < b ? -1 : a > b;
}

static void* ours_for(const struct map* map, const void* driver)
{
    size_t low = 0;
    size_t high = map->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (map->addresses[middle].driver == (uintptr_t)driver)
            return map->addresses[middle].ours;
        if (map->addresses[middle].driver < (uintptr_t)driver)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static void add(struct map* map, const void* driver, void* ours)
{
    for (size_t i = 0; i < map->count; i++)
        if (map->addresses[i].driver == (uintptr_t)driver)
            return;
    map->addresses[map->count++] = (struct address) { (uintptr_t)driver, ours };
}

/*
 * The driver may hand out addresses by cuGetProcAddress that dlsym does not know.
 * We ask for each function at the version of its form, and add what is new.
 */
static void add_by_version(struct map* map, void* handle)
{
    typedef int (*function)(const char*, void**, int, cuuint64_t, int*);
    function get = (function)vgpu_real_symbol(handle, "cuGetProcAddress_v2");
    if (!get)
        return;
    for (int i = 0; i < VGPU_HOOKS; i++) {
        void* found = NULL;
        int status = 0;
        if (table[i].per_thread < 0)
            continue;
        cuuint64_t flags = table[i].per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
                                               : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
        if (get(table[i].base, &found, table[i].version, flags, &status) == CUDA_SUCCESS && found)
            add(map, found, ours[i]);
    }
}

static void build(struct map* map, void* handle, bool is_nvml)
{
    for (int i = 0; i < VGPU_HOOKS; i++) {
        if ((table[i].per_thread < 0) != is_nvml)
            continue;
        void* found = vgpu_real_symbol(handle, table[i].symbol);
        if (!found)
            continue;
        atomic_store_explicit(&vgpu_real[i], found, memory_order_release);
        add(map, found, ours[i]);
    }
    if (is_nvml) {
        atomic_store_explicit(
            &vgpu_nvml_uuid, vgpu_real_symbol(handle, "nvmlDeviceGetUUID"), memory_order_release);
        atomic_store_explicit(
            &vgpu_nvml_index, vgpu_real_symbol(handle, "nvmlDeviceGetIndex"), memory_order_release);
    } else {
        for (int i = 0; i < VGPU_NEEDS; i++)
            atomic_store_explicit(&vgpu_needed[i], vgpu_real_symbol(handle, needed[i]), memory_order_release);
        add_by_version(map, handle);
    }
    qsort(map->addresses, map->count, sizeof *map->addresses, by_driver);
}

static void publish(struct map* map, const struct map* built)
{
    pthread_mutex_lock(&resolve_lock);
    if (!atomic_load_explicit(&map->is_mapped, memory_order_acquire)) {
        memcpy(map->addresses, built->addresses, sizeof map->addresses);
        map->count = built->count;
        atomic_store_explicit(&map->is_mapped, true, memory_order_release);
    }
    pthread_mutex_unlock(&resolve_lock);
}

/* Our own questions to the loader leave no error for the program to find. */
static void clear_error(void)
{
    if (vgpu_libc_has(VGPU_DL))
        LIBC(dlerror)();
}

/* Leaves the error of a name that is nowhere, and returns NULL. */
static void* missing(const char* name)
{
    static void* _Atomic libc;
    if (!vgpu_libc_find(VGPU_DL))
        return NULL;
    if (!atomic_load_explicit(&libc, memory_order_relaxed))
        atomic_store_explicit(
            &libc, LIBC(dlopen)("libc.so.6", RTLD_LAZY | RTLD_NOLOAD), memory_order_relaxed);
    /* Closing it would take the error back. */
    return vgpu_real_symbol(atomic_load_explicit(&libc, memory_order_relaxed), name);
}

static struct map* open_map(struct map* map, bool is_nvml, bool may_load)
{
    const char* library = is_nvml ? "libnvidia-ml.so.1" : "libcuda.so.1";
    if (!vgpu_libc_find(VGPU_DL))
        return NULL;
    void* handle = LIBC(dlopen)(library, RTLD_LAZY | RTLD_NOLOAD);
    if (!handle && may_load)
        handle = LIBC(dlopen)(library, RTLD_LAZY);
    if (!handle)
        return NULL;
    /* The driver has brought libpthread along, where the C library has one. */
    vgpu_libc_find(VGPU_THREADS);
    struct map built = { .count = 0 };
    build(&built, handle, is_nvml);
    publish(map, &built);
    return map;
}

/*
 * The map of a library that the process has loaded, or NULL.
 * may_load: also load it, because a program that is linked against it already calls us.
 */
static struct map* mapped(bool is_nvml, bool may_load)
{
    struct map* map = is_nvml ? &nvml_map : &cuda_map;
    if (LIKELY(atomic_load_explicit(&map->is_mapped, memory_order_acquire)))
        return map;
    map = open_map(map, is_nvml, may_load);
    clear_error();
    return map;
}

void* vgpu_resolve(enum vgpu_hook hook)
{
    mapped(table[hook].per_thread < 0, true);
    return atomic_load_explicit(&vgpu_real[hook], memory_order_acquire);
}

void* vgpu_swapped(void* driver)
{
    struct map* map = mapped(false, false);
    void* swapped = map && driver ? ours_for(map, driver) : NULL;
    return swapped ? swapped : driver;
}

static int number_of(const char* symbol)
{
    for (int i = 0; i < VGPU_HOOKS; i++)
        if (!strcmp(table[i].symbol, symbol))
            return i;
    return -1;
}

static bool is_in_this_library(const void* address)
{
    extern const char __ehdr_start[] __attribute__((visibility("hidden")));
    extern const char _end[] __attribute__((visibility("hidden")));
    return (uintptr_t)address >= (uintptr_t)__ehdr_start && (uintptr_t)address < (uintptr_t)_end;
}

/* The first other library after the caller's, in the order of loading, that defines the name itself. */
static void* after_caller(const void* caller, const char* name)
{
    Dl_info info;
    struct link_map* map = NULL;
    if (!vgpu_libc_find(VGPU_DL) || !LIBC(dladdr1)(caller, &info, (void**)&map, RTLD_DL_LINKMAP) || !map)
        return NULL;
    for (map = map->l_next; map; map = map->l_next) {
        void* handle
            = map->l_name && *map->l_name ? LIBC(dlopen)(map->l_name, RTLD_LAZY | RTLD_NOLOAD) : NULL;
        void* found = handle ? vgpu_real_symbol(handle, name) : NULL;
        if (handle)
            LIBC(dlclose)(handle);
        if (found && !is_in_this_library(found) && LIBC(dladdr)(found, &info)
            && (uintptr_t)info.dli_fbase == (uintptr_t)map->l_addr)
            return found;
    }
    return NULL;
}

/*
 * RTLD_NEXT and RTLD_DEFAULT for a function that we replace. The real dlsym would take us for the caller, so
 * the search is ours; where it finds nothing, but the driver is loaded out of sight, the caller gets the
 * function still.
 */
static struct vgpu_lookup look_around(void* handle, int number, const void* caller)
{
    const char* name = table[number].symbol;
    bool is_after_caller = handle == RTLD_NEXT && !is_in_this_library(caller);
    void* found = is_after_caller ? after_caller(caller, name) : vgpu_real_symbol(RTLD_NEXT, name);
    struct map* map = mapped(table[number].per_thread < 0, false);
    void* swapped = map && found ? ours_for(map, found) : NULL;
    if (map && !found && atomic_load_explicit(&vgpu_real[number], memory_order_acquire))
        swapped = ours[number];
    found = swapped ? swapped : found;
    if (found)
        clear_error();
    return (struct vgpu_lookup) { found ? found : missing(name), 1 };
}

/* What dlsym answers for a name of CUDA or NVML. is_final 0 asks the caller to jump to the real dlsym. */
struct vgpu_lookup vgpu_dlsym(void* handle, const char* name, void* caller)
{
    if (handle == RTLD_NEXT || handle == RTLD_DEFAULT) {
        int number = number_of(name);
        return number < 0 ? (struct vgpu_lookup) { NULL, 0 } : look_around(handle, number, caller);
    }
    void* found = vgpu_real_symbol(handle, name);
    /* The handle of the whole program reaches our exports; without us it would reach the driver's, or none.
     */
    if (found && is_in_this_library(found))
        found = vgpu_real_symbol(RTLD_NEXT, name);
    struct map* map = found ? mapped(name[0] == 'n', false) : NULL;
    void* swapped = map ? ours_for(map, found) : NULL;
    return (struct vgpu_lookup) { swapped ? swapped : found, 1 };
}

int vgpu_get_proc_address(int (*real)(const char*, void**, int, cuuint64_t), const char* name, void** found,
    int version, cuuint64_t flags)
{
    int result = real(name, found, version, flags);
    if (result == CUDA_SUCCESS && found)
        *found = vgpu_swapped(*found);
    return result;
}

int vgpu_get_proc_address_v2(int (*real)(const char*, void**, int, cuuint64_t, int*), const char* name,
    void** found, int version, cuuint64_t flags, int* status)
{
    int result = real(name, found, version, flags, status);
    if (result == CUDA_SUCCESS && found)
        *found = vgpu_swapped(*found);
    return result;
}
