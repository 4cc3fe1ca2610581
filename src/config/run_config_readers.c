// Says which keys act only while a run trains, so that a command that starts none can say that such
// a key has no effect there. A key that no row names acts everywhere or is refused.
#include "config/run_config_readers.h"

#include "base/base.h"

#include <string.h>

typedef struct key_readers {
    const char *key; // with a dot at the end: all keys below it
    int readers;     // of RUN_READER_*
} key_readers;

// The first row that matches counts.
static const key_readers rows[] = {
    {"run.dir", 0},
    {"train.seed", RUN_READER_PREDICTION}, // of the failures of a long run
    {"train.z_loss", 0},
    {"train.mtp_loss", 0},
    {"train.objective", RUN_READER_PLAN},
    {"objective.", RUN_READER_PLAN},
    {"sdc.abft", RUN_READER_PLAN | RUN_READER_PROCESSOR},
    {"sdc.", 0},
    {"adapter.alpha", 0},
    {"train.max_time", 0},
    {"train.steps", RUN_READER_PREDICTION},
    {"train.tokens", RUN_READER_PREDICTION},
    {"train.epochs", RUN_READER_PREDICTION},
    {"optimizer.name", RUN_READER_PLAN | RUN_READER_PREDICTION},
    {"optimizer.", 0},
    {"schedule.", 0},
    {"eval.every", RUN_READER_PLAN},
    {"eval.", 0},
    {"checkpoint.every", 0},
    {"checkpoint.tiers", 0},
    {"checkpoint.keep", RUN_READER_PREDICTION},
    {"checkpoint.keep_every", 0},
    {"checkpoint.scrub", 0},
    {"model.rope_theta", 0},
    {"model.norm_eps", 0},
    {"data.tokenizer", RUN_READER_PLAN | RUN_READER_PREDICTION},
    {"data.packing", RUN_READER_PLAN | RUN_READER_PROCESSOR},
    {"data.valid", RUN_READER_PLAN},
    {"data.", 0},
    {"memory.limit", 0},
    {"kernels.threads", RUN_READER_PLAN | RUN_READER_PROCESSOR},
    {"kernels.keep_panels", RUN_READER_PROCESSOR},
    {"kernels.", 0},
    {"precision.loss_scale.", 0},
    {"precision.fp8", RUN_READER_PLAN},
    {"precision.fp8_history", 0},
    {"precision.fp8_margin", 0},
    {"policy.", 0},
    {"comm.compression.bound", 0},
    {"comm.compression.warmup", 0},
    {"comm.transport", 0},
    {"comm.tuning", 0},
    {"resilience.", 0},
    {"trace.", 0},
    {"log.", 0},
};

bool run_config_is_read(const char *key, int64_t length, int readers)
{
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        const int64_t own = (int64_t)strlen(rows[i].key);
        const bool is_heading = rows[i].key[own - 1] == '.';
        if (is_heading ? length <= own : length != own) continue;
        if (strncmp(key, rows[i].key, (size_t)own) != 0) continue;
        return (rows[i].readers & readers) != 0;
    }
    return true;
}
