// Slurm's choice of GPUs, for the driver.
//
//   Slurm says        SLURM_STEP_GPUS=2,3         numbers of /dev/nvidiaN
//   NVML knows        UUID and N of every GPU that the device cgroup lets this process see
//   CUDA_VISIBLE_     not set: all of them        or numbers of theirs, or UUIDs
//    DEVICES
//
// Mostly Slurm sets CUDA_VISIBLE_DEVICES or the cgroup as well, and there is nothing to choose. It
// does neither where gres.conf has no_gpu_env and cgroup.conf no ConstrainDevices, and a container
// or a script may set the variable anew. The driver counts from 0 whatever it is shown, so numbers
// of device files would be wrong in a cgroup: UUIDs are the same everywhere.
#include "cli/gpus.h"

#include "base/text.h"
#include "device/cuda/nvml.h"
#include "launch/launch.h"

#include <stdlib.h>
#include <string.h>

enum { UUID_BYTES = 96 };

typedef struct seen {
    char uuids[LAUNCH_GPUS_MAX][UUID_BYTES];
    int numbers[LAUNCH_GPUS_MAX]; // of their device files
    int count;
    bool has_slices;
} seen;

static bool seen_add(const nvml_library *l, nvml_device d, seen *s)
{
    unsigned number = 0, slices = 0, pending = 0;
    if (d == NULL || s->count == LAUNCH_GPUS_MAX || l->minor(d, &number) != 0) return false;
    if (l->uuid(d, s->uuids[s->count], UUID_BYTES) != 0) return false;
    s->has_slices = s->has_slices || nvml_is_slice(l, d) ||
                    (l->mig_mode(d, &slices, &pending) == 0 && slices != 0);
    s->numbers[s->count++] = (int)number;
    return true;
}

// All GPUs, or those that `visible` names. False: it cannot be said which they are.
static bool seen_find(const nvml_library *l, const char *visible, seen *s)
{
    unsigned count = 0;
    bool known = l->count(&count) == 0;
    for (unsigned i = 0; visible == NULL && i < count && known; i++) {
        known = seen_add(l, nvml_find(l, (int)i), s);
    }
    while (visible != NULL && *visible != '\0' && known) {
        char one[UUID_BYTES];
        const size_t length = strcspn(visible, ",");
        int64_t number = -1;
        if (length == 0 || length >= sizeof(one)) return false;
        memcpy(one, visible, length);
        one[length] = '\0';
        const bool is_number = text_parse_i64(one, &number);
        known = seen_add(
            l, is_number ? nvml_find(l, (int)min_i64(number, 1000)) : nvml_find_uuid(l, one), s);
        visible += length + (visible[length] == ',');
    }
    return known;
}

static bool is_given(const launch_gpus *g, int number)
{
    for (int i = 0; i < g->count; i++) {
        if (g->numbers[i] == number) return true;
    }
    return false;
}

static status show(cli_context *cli, const seen *s, const int *order, int count)
{
    text list = {.a = cli->a};
    for (int i = 0; i < count; i++) {
        TRY(text_add(&list, "%s%s", i > 0 ? "," : "", s->uuids[order[i]]));
    }
    if (setenv("CUDA_VISIBLE_DEVICES", list.bytes, 1) == 0) return ST_OK;
    return fail(ST_NO_MEMORY, "no memory for CUDA_VISIBLE_DEVICES");
}

static status refuse(const launch_gpus *g, const seen *s, const char *visible, arena *a)
{
    text numbers = {.a = a};
    for (int i = 0; i < s->count; i++) {
        TRY(text_add(&numbers, "%s%d", i > 0 ? "," : "", s->numbers[i]));
    }
    return fail(ST_CONFIG,
                "Slurm gave this process GPU %s (%s=%s), and %s%s shows /dev/nvidia%s alone, which "
                "may belong to another job; unset %s, or start the ranks with srun's --gres or "
                "--gpus-per-task",
                g->list, g->variable, g->list,
                visible != NULL ? "CUDA_VISIBLE_DEVICES=" : "NVIDIA's driver",
                visible != NULL ? visible : "", numbers.bytes,
                visible != NULL ? "CUDA_VISIBLE_DEVICES" : g->variable);
}

// All GPUs, with Slurm's from this task's turn on, in which ranks of a host take them.
static void turn(const launch_gpus *g, const int *own, int own_count, int *order, int count)
{
    bool is_taken[LAUNCH_GPUS_MAX] = {false};
    int at = g->local_rank % count;
    for (int i = 0; i < own_count; i++) {
        const int next = own[(g->local_rank + i) % own_count];
        order[at] = next;
        is_taken[next] = true;
        at = (at + 1) % count;
    }
    for (int i = 0; i < count; i++) {
        if (is_taken[i]) continue;
        order[at] = i;
        at = (at + 1) % count;
    }
}

static status choose(cli_context *cli, const launch_gpus *g, const seen *s, const char *visible,
                     int peers, const char **said)
{
    int own[LAUNCH_GPUS_MAX], order[LAUNCH_GPUS_MAX], count = 0;
    char *what = NULL;
    for (int i = 0; i < s->count; i++) {
        if (is_given(g, s->numbers[i])) own[count++] = i;
    }
    if (s->count == 0 || count == s->count) return ST_OK;
    if (count == 0) return refuse(g, s, visible, cli->a);
    const bool all = peers > count;
    if (all) turn(g, own, count, order, s->count);
    TRY(all ? show(cli, s, order, s->count) : show(cli, s, own, count));
    TRY(arena_format(cli->a, &what, "%s%s shows %d GPUs, and Slurm gave this process %s (%s=%s)",
                     visible != NULL ? "CUDA_VISIBLE_DEVICES=" : "the driver",
                     visible != NULL ? visible : "", s->count,
                     count > 1 ? "some of them, which it takes" : "one of them, which it takes",
                     g->variable, g->list));
    *said = what;
    return ST_OK;
}

status cli_gpus_show(cli_context *cli, int peers, const char **said)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES"), *why = NULL;
    char *what = NULL;
    launch_gpus g;
    nvml_library nvml;
    seen *s = NULL;
    *said = NULL;
    launch_gpus_of_slurm(cli_environment, NULL, &g);
    // A process of this program has chosen for those that it starts.
    if (g.count == 0 || getenv("TRIREME_LAUNCH") != NULL) return ST_OK;
    if (!nvml_library_open(&nvml, &why)) {
        TRY(arena_format(cli->a, &what,
                         "%s=%s cannot be compared with the GPUs that are visible: %s", g.variable,
                         g.list, why));
        *said = what;
        return ST_OK;
    }
    status st = arena_new(cli->a, 1, &s);
    if (st == ST_OK) {
        memset(s, 0, sizeof(*s));
        // Slurm numbers slices by MIG in its own way.
        const bool known = seen_find(&nvml, visible, s) && !s->has_slices;
        if (known) st = choose(cli, &g, s, visible, peers, said);
    }
    nvml_library_close(&nvml);
    return st;
}
