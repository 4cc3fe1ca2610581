// A spare (resilience.spares) prepares for the places that it may get.
//
//   plans    of one rank of each stage first, then of the others, as many as a process keeps
//   memory   for the largest of their arenas: reserved, then its pages mapped, piece by piece
//
// A place may come at any time, so the spare looks for it between two pieces of work. Whatever it
// has by then is kept, and the session makes the rest.
#include "train/process.h"
#include "train/session.h"

#include <sched.h>

enum { TOUCH_BYTES = 64 << 20, PAGE_BYTES = 4096 };

typedef struct spare {
    const host *h;
    arena *a;
    train_process *p;
    bool (*asked)(void *context);
    void *context;
    run_config *given;
    decoder_spec *spec;
    int64_t micro_batch; // that all ranks agree on
    int32_t recompute;
    int64_t bytes, places;
} spare;

static bool is_asked(const spare *x)
{
    return x->asked != NULL && x->asked(x->context);
}

// A rank's threads depend on its share of the cores.
static int threads_of(const run_config *r, int64_t rank)
{
    cpu_set_t all;
    const int ranks = (int)run_config_ranks(r);
    const bool has = sched_getaffinity(0, sizeof(all), &all) == 0;
    if (r->kernels.threads > 0) return (int)r->kernels.threads;
    if (ranks > 1) kern_cores_divide((int)rank, ranks);
    const int threads = assemble_threads(r);
    if (has) (void)sched_setaffinity(0, sizeof(all), &all);
    return threads;
}

static assemble_options options_of(const run_config *r, int64_t rank)
{
    const plan_mesh mesh = run_config_mesh(r, rank);
    assemble_options o = session_options(r, &mesh);
    o.threads = threads_of(r, rank);
    return o;
}

// Ranks that differ in their stage alone, then the others. Returns the rank in place i.
static int64_t rank_in_order(const run_config *r, int64_t i)
{
    const int64_t stages = r->layout.pp, each = run_config_ranks(r) / stages;
    if (i < stages) return i * each;
    i -= stages;
    return i / (each - 1) * each + 1 + i % (each - 1);
}

// The settings that ranks agree on: the tightest ones of all stages.
static status settings_find(spare *x)
{
    const run_config *r = x->given;
    x->micro_batch = INT64_MAX;
    for (int64_t i = 0; i < r->layout.pp; i++) {
        run_config one = *r;
        const assemble_options o = options_of(r, rank_in_order(r, i));
        TRY(assemble_memory_choose(&one, x->spec, &o));
        x->micro_batch = min_i64(x->micro_batch, one.train.micro_batch);
        x->recompute = one.train.recompute > x->recompute ? one.train.recompute : x->recompute;
    }
    return ST_OK;
}

static status place_plan(spare *x, int64_t rank)
{
    run_config *r = NULL;
    assemble_plans *plans = NULL;
    hash128 key;
    const assemble_options o = options_of(x->given, rank);
    TRY(arena_new(x->a, 1, &r));
    TRY(arena_new(x->a, 1, &plans));
    *r = *x->given;
    TRY(assemble_memory_choose(r, x->spec, &o));
    r->train.micro_batch = x->micro_batch;
    r->train.recompute = x->recompute;
    TRY(process_key(x->a, r, x->spec, &o, &o.mesh, &key));
    const assemble_plans *had = process_plans_find(x->p, key);
    if (had == NULL) {
        TRY(assemble_rank(x->a, r, x->spec, &o, plans));
        process_plans_keep(x->p, key, x->a, plans);
        had = plans;
    }
    x->bytes = max_i64(x->bytes, had->arena_bytes);
    x->places++;
    return ST_OK;
}

static status plans_make(spare *x)
{
    const int64_t all = min_i64(run_config_ranks(x->given), PROCESS_PLANS_MAX - 1);
    for (int64_t i = 0; i < all && !is_asked(x); i++) {
        TRY(place_plan(x, rank_in_order(x->given, i)));
    }
    return ST_OK;
}

// Memory in which a device of this process runs, and its peers reach it.
static bool may_reserve(const spare *x)
{
    const run_config *r = x->given;
    const bool is_shared =
        r->comm.transport == RUN_TRANSPORT_AUTO || r->comm.transport == RUN_TRANSPORT_SHM;
    const device_api *api = device_find(run_config_device(r));
    return is_shared && api != NULL && !api->hides_memory && run_config_ranks(r) > 1 &&
           x->bytes <= host_memory_bytes(x->h);
}

static status memory_reserve(spare *x)
{
    if (!may_reserve(x) || is_asked(x)) return ST_OK;
    train_process *p = x->p;
    if (p->memory != NULL && comm_memory_bytes(p->memory) >= x->bytes) return ST_OK;
    comm_memory_destroy(p->memory);
    p->memory = NULL;
    p->state_step = -1;
    TRY(comm_memory_create_apart(x->bytes, &p->memory));
    p->memory_is_fresh = true;
    char *at = comm_memory_at(p->memory);
    for (int64_t begin = 0; begin < x->bytes && !is_asked(x); begin += TOUCH_BYTES) {
        const int64_t end = min_i64(begin + TOUCH_BYTES, x->bytes);
        for (int64_t i = begin; i < end; i += PAGE_BYTES) ((volatile char *)at)[i] = 0;
    }
    return ST_OK;
}

static status prepare(spare *x, const run_config *r)
{
    train_loader *loader = NULL;
    TRY(arena_new(x->a, 1, &x->given));
    TRY(arena_new(x->a, 1, &x->spec));
    *x->given = *r;
    TRY(train_loader_open(x->h, x->a, x->given, &loader));
    const status st = train_loader_model(loader, x->given, x->spec); // fills in the vocabulary
    train_loader_close(loader);
    TRY(st);
    TRY(assemble_layout_check(x->given, x->spec));
    TRY(settings_find(x));
    TRY(plans_make(x));
    return memory_reserve(x);
}

status train_spare_prepare(const host *h, arena *a, const run_config *r, train_process *p,
                           bool (*asked)(void *context), void *context, train_spare *out)
{
    spare x = {.h = h, .a = a, .p = p, .asked = asked, .context = context};
    *out = (train_spare){0};
    TRY(prepare(&x, r));
    *out = (train_spare){.bytes = p->memory != NULL ? comm_memory_bytes(p->memory) : 0,
                         .places = x.places};
    return ST_OK;
}
