// The table of devices, one row each.
#include "device/device.h"

#include <string.h>

static const device_api *const devices[] = {&device_cpu, &device_shadow, &device_cuda};

const device_api *device_find(const char *name)
{
    for (int64_t i = 0; i < COUNT_OF(devices); i++) {
        if (strcmp(devices[i]->name, name) == 0) return devices[i];
    }
    return NULL;
}
