// Keys of a file as overrides of another.
#ifndef CONFIG_RUN_CONFIG_OVERRIDES_H
#define CONFIG_RUN_CONFIG_OVERRIDES_H

#include "config/run_config.h"

#ifdef __cplusplus
extern "C" {
#endif

// The keys that a file gives, as "key=value"; paths are absolute. Their conflicts are not checked.
NODISCARD status run_config_overrides(const host *h, arena *a, const char *path, option_list *out);

#ifdef __cplusplus
}
#endif
#endif
