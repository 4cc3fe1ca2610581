// The keys of lost and slow ranks (resilience.*).
#ifndef CONFIG_RUN_RESILIENCE_H
#define CONFIG_RUN_RESILIENCE_H

#include <stdint.h>

typedef struct run_resilience_keys {
    int32_t mode; // run_resilience
    struct {
        int64_t every; // steps between two copies of the state in memory
        int64_t ranks; // steps between two copies of shards in other ranks; 0: none
    } buddy;
    int64_t spares;       // processes that wait
    int64_t min_ranks;    // the run shrinks to these; 0: lost ranks are started again
    int64_t join_timeout; // ns
    int32_t straggler;    // run_straggler
} run_resilience_keys;

#endif
