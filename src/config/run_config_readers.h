// Which commands read which keys of a run.
#ifndef CONFIG_RUN_CONFIG_READERS_H
#define CONFIG_RUN_CONFIG_READERS_H

#include "base/types.h"

#ifdef __cplusplus
extern "C" {
#endif

// Readers of keys that start no run: the plans of a run (`verify`, `explain`), a prediction, and a
// prediction for a processor.
enum { RUN_READER_PLAN = 1, RUN_READER_PREDICTION = 2, RUN_READER_PROCESSOR = 4 };
// False if none of `readers` reads this key (`length` bytes of it), which then acts only while a
// run trains.
bool run_config_is_read(const char *key, int64_t length, int readers);

#ifdef __cplusplus
}
#endif
#endif
