// `data trace` of conversations: the samples of a step, the steps of a sample, and the prompts of a
// run that draws completions.
//
// A row of samples is a function of the data, the seed and its number, as a sequence of texts is.
// The samples keep their file and line, so no ledger is read.
#include "cli/data/data_trace.h"

#include "cli/json_text.h"

#include <string.h>

// ---- samples ------------------------------------------------------------------------------------

static status add_name(text *line, const char *path, int64_t number)
{
    char *name = NULL;
    TRY(arena_format(line->a, &name, "%s:%lld", path, (long long)number));
    return cli_add_json_text(line, name, (int64_t)strlen(name));
}

static status sample_json(const trace *t, const data_conversation *c, const data_conversation *lent,
                          bool is_many)
{
    text line = {.a = t->cli->a};
    TRY(text_add(&line, "{\"step\": %lld, \"sequence\": %lld, \"name\": ", (long long)t->step,
                 (long long)t->sequence));
    TRY(add_name(&line, c->path, c->line));
    if (is_many) TRY(text_add(&line, ", \"completion\": %lld", (long long)c->completion));
    TRY(text_add(&line, ", \"tokens\": %lld, \"id\": ", (long long)c->tokens));
    TRY(data_trace_add_id(&line, c->id, c->id_bytes));
    if (lent != NULL) {
        TRY(text_add(&line, ", \"compared\": "));
        TRY(add_name(&line, lent->path, lent->line));
    }
    TRY(text_add(&line, "}\n"));
    cli_print_text(t->cli, &line);
    return ST_OK;
}

static bool has_many(const trace *t)
{
    return run_objective_at(t->r->train.objective)->samples == RUN_SAMPLES_ROLLOUTS;
}

static status print_sample(void *context, const data_conversation *c)
{
    trace *t = context;
    data_conversation lent;
    if (c->is_hidden) return ST_OK;
    bool is_lent = c->lender >= 0;
    if (is_lent) data_dataset_conversation(t->d, c->lender, &lent);
    is_lent = is_lent && !lent.is_hidden;
    t->lines++;
    if (t->f->json) {
        return sample_json(t, c, is_lent ? &lent : NULL, has_many(t));
    }
    cli_print(t->cli, "%10lld  %s:%lld", (long long)t->sequence, c->path, (long long)c->line);
    if (has_many(t)) cli_print(t->cli, "  completion %lld", (long long)c->completion + 1);
    if (c->id != NULL) cli_print(t->cli, "  %.*s", (int)c->id_bytes, c->id);
    if (is_lent) {
        cli_print(t->cli, "  compared with the answer of %s:%lld", path_base_name(lent.path),
                  (long long)lent.line);
    }
    cli_print(t->cli, "\n");
    return ST_OK;
}

// Which samples have the name that was asked for, and how a sequence shows one.
typedef struct sample_search {
    const trace *t;
    char *is_named; // [sample]
    bool is_trained, is_lent;
} sample_search;

static status meet_sample(void *context, const data_conversation *c)
{
    sample_search *s = context;
    data_conversation lent;
    if (c->is_hidden) return ST_OK;
    s->is_trained = s->is_trained || s->is_named[c->sample] != 0;
    if (c->lender < 0 || s->is_named[c->lender] == 0) return ST_OK;
    data_dataset_conversation(s->t->d, c->lender, &lent);
    s->is_lent = s->is_lent || !lent.is_hidden;
    return ST_OK;
}

static status no_such_name(const trace *t, const char *what)
{
    return fail(ST_NOT_FOUND,
                "no %s has the name \"%.100s\"; a name is FILE:LINE or the \"id\" of a line", what,
                t->f->document);
}

static status steps_of_sample(trace *t)
{
    sample_search s = {.t = t};
    int64_t found = 0, sequence = 0;
    TRY(arena_new(t->cli->a, data_dataset_sample_count(t->d, DATA_TRAIN) + 1, &s.is_named));
    TRY(data_dataset_conversations_named(t->d, t->f->document, s.is_named, &found));
    if (found == 0) return no_such_name(t, "sample of the training data");
    for (t->step = 1; t->step <= t->r->train.steps; t->step++) {
        const int64_t count = run_config_batch(t->r, t->step - 1);
        TRY(data_trace_hide(t, t->step));
        for (int64_t i = 0; i < count; i++, sequence++) {
            s.is_trained = s.is_lent = false;
            t->sequence = sequence;
            TRY(data_dataset_conversations(t->d, sequence, meet_sample, &s));
            if (s.is_trained) data_trace_print_hit(t, NULL);
            if (s.is_lent) data_trace_print_hit(t, "an answer to compare with");
        }
    }
    return ST_OK;
}

status data_trace_samples(trace *t)
{
    if (t->f->document != NULL) return steps_of_sample(t);
    const int64_t first = data_trace_before(t, t->step);
    const int64_t count = run_config_batch(t->r, t->step - 1);
    TRY(data_trace_hide(t, t->step));
    if (!t->f->json) cli_print(t->cli, "%10s  sample\n", "sequence");
    for (t->sequence = first; t->sequence < first + count; t->sequence++) {
        TRY(data_dataset_conversations(t->d, t->sequence, print_sample, t));
    }
    return ST_OK;
}

// ---- prompts ------------------------------------------------------------------------------------

static status prompt_json(const trace *t, const data_prompt *p)
{
    text line = {.a = t->cli->a};
    TRY(text_add(&line, "{\"step\": %lld, \"sequence\": %lld, \"name\": ", (long long)t->step,
                 (long long)t->sequence));
    TRY(add_name(&line, t->prompts->path, p->line));
    TRY(text_add(&line, ", \"completions\": %lld, \"id\": ", (long long)t->r->rollout.group));
    TRY(data_trace_add_id(&line, p->id, p->id != NULL ? (int64_t)strlen(p->id) : 0));
    TRY(text_add(&line, "}\n"));
    cli_print_text(t->cli, &line);
    return ST_OK;
}

static status print_prompt(trace *t, const data_prompt *p)
{
    t->lines++;
    if (t->f->json) return prompt_json(t, p);
    cli_print(t->cli, "%10lld  %s:%lld  %lld completions%s%s\n", (long long)t->sequence,
              t->prompts->path, (long long)p->line, (long long)t->r->rollout.group,
              p->id != NULL ? "  " : "", p->id != NULL ? p->id : "");
    return ST_OK;
}

// A group of sequences has one prompt. is_named: by prompt; NULL: all are listed.
static status prompts_of_step(trace *t, const char *is_named, int64_t first, int64_t count)
{
    const uint64_t seed = (uint64_t)t->r->rollout.seed;
    const int64_t group = t->r->rollout.group;
    TRY(data_trace_hide(t, t->step));
    for (t->sequence = first; t->sequence < first + count; t->sequence += group) {
        const int64_t i = data_prompts_at(t->prompts, seed, t->sequence / group);
        if (is_named == NULL) {
            TRY(print_prompt(t, &t->prompts->items[i]));
        } else if (is_named[i] != 0) {
            data_trace_print_hit(t, NULL);
        }
    }
    return ST_OK;
}

status data_trace_prompts(trace *t)
{
    char *is_named = NULL;
    int64_t found = 0, first = 0;
    if (t->f->document == NULL) {
        if (!t->f->json) cli_print(t->cli, "%10s  prompt\n", "sequence");
        first = data_trace_before(t, t->step);
        return prompts_of_step(t, NULL, first, run_config_batch(t->r, t->step - 1));
    }
    TRY(arena_new(t->cli->a, t->prompts->count, &is_named));
    TRY(data_prompts_named(t->prompts, t->f->document, is_named, &found));
    if (found == 0) return no_such_name(t, "prompt");
    for (t->step = 1; t->step <= t->r->train.steps; t->step++) {
        const int64_t count = run_config_batch(t->r, t->step - 1);
        TRY(prompts_of_step(t, is_named, first, count));
        first += count;
    }
    return ST_OK;
}
