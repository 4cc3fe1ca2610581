// All devices, a row each.
#include "kernels/kernels.h"

#include <string.h>

static const kern_device_api *const devices[] = {&kern_device_cpu, &kern_device_shadow};

const kern_device_api *kern_device_find(const char *name)
{
    for (int64_t i = 0; i < COUNT_OF(devices); i++) {
        if (strcmp(devices[i]->name, name) == 0) return devices[i];
    }
    return NULL;
}
