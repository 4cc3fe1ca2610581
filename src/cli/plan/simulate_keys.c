// Keys of a command line that would change no prediction: those whose figures the catalogue only
// shows and those of levels that the cluster does not have are refused; those that act only while a
// run trains, and those of levels that the run does not reach, are told.
#include "cli/plan/simulate.h"
#include "cli/run_model.h"

#include <stdio.h>
#include <string.h>

static const char of_cluster[] = "cluster.";

static bool begins(const char *key, const char *with)
{
    return strncmp(key, with, strlen(with)) == 0;
}

status simulate_cluster_key_check(const char *key)
{
    static const char *const shown[] = {"about=",
                                        "sources=",
                                        "assumed=",
                                        "device.l2_mb=",
                                        "device.clock_mhz=",
                                        "device.context_gib=",
                                        "device.lanes_per_unit=",
                                        "device.dies=",
                                        "device.sparse_tflops.",
                                        "device.software.",
                                        "device.vector_tflops=",
                                        "device.peak_tflops.int8=",
                                        "device.peak_tflops.fp4=",
                                        "device.product_share.int8=",
                                        "device.product_share.fp4=",
                                        "node.host_memory_gb=",
                                        "prices.device_usd="};
    for (int64_t i = 0; i < COUNT_OF(shown); i++) {
        if (!begins(key, shown[i])) continue;
        return fail(ST_CONFIG_CONFLICT,
                    "cluster.%.*s has no effect: the catalogue shows this figure, and no "
                    "prediction reads it; leave it out",
                    (int)strcspn(key, "="), key);
    }
    return ST_OK;
}

status simulate_cores_key_check(const char *key)
{
    if (!begins(key, "node.cpu_cores=") && !begins(key, "node.other_threads=")) return ST_OK;
    return fail(
        ST_CONFIG_CONFLICT,
        "cluster.%.*s has no effect: only `simulate` reads it, for processors; leave it out",
        (int)strcspn(key, "="), key);
}

// Number of the innermost levels that the ranks of a run use.
static int levels_used(const cluster *c, int64_t ranks)
{
    int used = 1;
    while (used < c->level_count && c->levels[used - 1].devices < ranks) used++;
    return used;
}

static status level_key_check(cli_context *cli, const cluster *c, const char *key, int64_t ranks)
{
    int level = 0, length = (int)strcspn(key, "=");
    const int used = levels_used(c, ranks);
    if (sscanf(key, "cluster.levels.%d.", &level) != 1) return ST_OK;
    const char *field = strchr(key + strlen("cluster.levels."), '.');
    if (field == NULL) return ST_OK;
    if (level > c->level_count) {
        return fail(ST_CONFIG_CONFLICT,
                    "%.*s has no effect: the cluster has %d level%s; another one needs "
                    "cluster.levels.%d.devices and cluster.levels.%d.link",
                    length, key, c->level_count, text_plural(c->level_count, "s"),
                    c->level_count + 1, c->level_count + 1);
    }
    if (begins(field, ".name=")) {
        return fail(ST_CONFIG_CONFLICT, "%.*s has no effect: it is shown only; leave it out",
                    length, key);
    }
    if (begins(field, ".dims.") && level > 0 && c->levels[level - 1].shape != SHAPE_TORUS) {
        return fail(ST_CONFIG_CONFLICT,
                    "%.*s has no effect: it applies only to cluster.levels.%d.shape=torus", length,
                    key, level);
    }
    if (level > used && ranks > 0 && !begins(field, ".devices=")) {
        cli_warn(cli, "%.*s has no effect here: the %lld devices of the run are within level %d",
                 length, key, (long long)ranks, used);
    }
    return ST_OK;
}

// Keys of a whole run's days, failures and cost, which a single step does not have.
static bool is_of_length(const char *key)
{
    static const char *const names[] = {"price.",
                                        "fleet.",
                                        "checkpoint.write_s=",
                                        "checkpoint.restart_s=",
                                        "checkpoint.interval_s=",
                                        "checkpoint.keep=",
                                        "cluster.prices.",
                                        "cluster.failures.",
                                        "cluster.storage.",
                                        "cluster.pue=",
                                        "cluster.node.watts=",
                                        "cluster.node.storage_"};
    for (int64_t i = 0; i < COUNT_OF(names); i++) {
        if (begins(key, names[i])) return true;
    }
    return false;
}

status simulate_keys_check(cli_context *cli, const char *const *keys, int64_t count,
                           const predict_setup *s, int64_t ranks)
{
    const int readers =
        RUN_READER_PREDICTION | (cost_is_processor(&s->machine.device) ? RUN_READER_PROCESSOR : 0);
    for (int64_t i = 0; i < count; i++) {
        if (!s->has_length && is_of_length(keys[i])) {
            cli_warn(cli, "%.*s has no effect here: give the length of the run, as train.tokens",
                     (int)strcspn(keys[i], "="), keys[i]);
        }
        if (!begins(keys[i], of_cluster)) continue;
        if (!cost_is_processor(&s->machine.device)) {
            TRY(simulate_cores_key_check(keys[i] + strlen(of_cluster)));
        }
        TRY(level_key_check(cli, &s->machine, keys[i], ranks));
    }
    cli_warn_unread(cli, keys, count, readers);
    return ST_OK;
}
