// `layout: auto`, and `train.micro_batch: auto` for a given layout: finds the fastest on this
// machine's cores.
#include "cli/plan/plan.h"

#include "cli/run_model.h"

enum { VOCAB_ANY = 1 << 14 };

static status model_find(cli_context *cli, predict_planner *p)
{
    bool is_known = false;
    decoder_spec *spec = &p->each.base.spec;
    TRY(cli_run_model(cli, p->each.base.r, spec, &is_known));
    if (spec->vocab == 0) spec->vocab = VOCAB_ANY;
    return ST_OK;
}

// Fills *own from the ranks in *place; returns NULL if place is NULL.
static const predict_started *started_of(const launch_place *place, predict_started *own)
{
    if (place == NULL) return NULL;
    *own = (predict_started){.ranks = place->ranks, .local_ranks = place->local_ranks};
    return own;
}

// Experts cannot be cut between ranks in training yet (assemble_train_check).
static void experts_fix(search_fixed *f)
{
    if (f->tp == 0) f->tp = 1;
    if (f->ep == 0) f->ep = 1;
}

status plan_auto(cli_context *cli, const char *yaml, const char *const *keys, int64_t key_count,
                 const launch_place *started, const char ***out, int64_t *count)
{
    predict_planner *p = NULL;
    predict_started own;
    config *c = NULL;
    const char **all = NULL;
    search_layout best = {.dp = 0};
    TRY(arena_new(cli->a, key_count + PLAN_LAYOUT_KEYS + 1, &all));
    for (int64_t i = 0; i < key_count; i++) all[i] = keys[i];
    all[key_count] = "layout.mode=given";
    TRY(predict_here(cli->h, cli->a, "layout: auto", &p));
    run_config *r = p->each.base.r;
    TRY(run_config_load_searched(cli->h, cli->a, yaml, all, key_count + 1, false, r, &c));
    TRY(plan_fix(c, r, &p->fixed));
    TRY(model_find(cli, p));
    if (p->each.base.spec.experts.count > 0) experts_fix(&p->fixed);
    TRY(arena_create("a simulation", 0, &p->each.work));
    cli_progress *progress = NULL;
    cli_progress_begin(cli, "layout: auto", &progress);
    plan_watch(p, progress);
    const status st = predict_here_layout(p, started_of(started, &own), &best);
    cli_progress_end(progress);
    candidates_scratch_destroy(&p->each);
    TRY(st);
    int64_t n = key_count;
    TRY(plan_layout_keys(p, &best, all, &n));
    *out = all;
    *count = n;
    return ST_OK;
}

status plan_micro_batch_here(cli_context *cli, const launch_place *started, run_config *r)
{
    predict_planner *p = NULL;
    predict_started own;
    if (!r->train.micro_batch_planned) return ST_OK;
    TRY(predict_here(cli->h, cli->a, "train.micro_batch: auto", &p));
    predict_setup *s = &p->each.base;
    *s->r = *r;
    TRY(model_find(cli, p));
    TRY(assemble_layout_check(r, &s->spec));
    TRY(predict_here_share(p, started_of(started, &own), run_config_ranks(r)));
    cli_progress *progress = NULL;
    cli_progress_begin(cli, "train.micro_batch: auto", &progress);
    const status st = predict_micro_batch(cli->h, cli->a, s);
    cli_progress_end(progress);
    TRY(st);
    r->train = s->r->train;
    return ST_OK;
}
