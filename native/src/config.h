/* HAMi's environment variables as limits. Pure: it reads through `get` and writes into the given record. */
#ifndef VGPU_CONFIG_H
#define VGPU_CONFIG_H

#include "vgpu_abi.h"

#include <stdbool.h>

struct vgpu_parsed {
    uint64_t value;
    const char* error; /* NULL, or what was expected */
};

/* "1024", "512m", "16Gi", "4 GB" are refused or taken as docs say: decimal digits, then k m g t, then i, b or
 * ib. */
struct vgpu_parsed vgpu_parse_bytes(const char* text);

/* 0 to 100. */
struct vgpu_parsed vgpu_parse_percent(const char* text);

typedef const char* (*vgpu_getter)(const char* name);

/*
 * Fills in the limits of all device numbers; returns whether any is set.
 * What cannot be read grants nothing, and is said on stderr.
 */
bool vgpu_limits_from(vgpu_getter get, struct vgpu_control* control);

/*
 * The device number of a CUDA ordinal: its place in CUDA_VISIBLE_DEVICES, where that is a list of numbers.
 * -1 when it cannot be told.
 */
int vgpu_number_of_ordinal(const char* visible_devices, int ordinal);

#endif
