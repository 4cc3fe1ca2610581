// Right answers: equal to the target, or accepted by a command that runs them confined.
#include "infer/answer.h"
#include "infer/task_answers.h"
#include "infer/task_internal.h"
#include "sandbox/sandbox.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct grading {
    const host *h;
    arena *a;
    const task_spec *spec;
    task_prompts *prompts;
    int64_t processors;
    const task_watcher *watcher;
    task_reading reading; // for the program's template
    jinja_template *program;
    answer_rules *rules;
    task_result *out;
} grading;

// ---- the target ---------------------------------------------------------------------------------

static status answer_compare(grading *g, const task_prompt *p, task_answer *x)
{
    const answer_text answer = {.bytes = x->text, .count = x->bytes};
    const answer_text target = {.bytes = p->target, .count = p->target_bytes};
    const char *const given[] = {g->spec->extract, g->spec->extract_last};
    for (int part = ANSWER_FIRST; part <= ANSWER_LAST; part++) {
        answer_text found;
        char *kept = NULL;
        if (part == ANSWER_LAST && given[part] == NULL) break;
        arena_reset(g->reading.scratch);
        TRY(answer_extract(g->rules, (answer_part)part, answer, &found));
        TRY(answer_equal(g->rules, g->reading.scratch, found, target, &x->is_right[part]));
        TRY(arena_new(g->a, found.count + 1, &kept));
        if (found.count > 0) memcpy(kept, found.bytes, (size_t)found.count);
        kept[found.count] = 0;
        x->extracted[part] = kept;
    }
    return ST_OK;
}

static status rules_open(arena *a, const task_spec *s, answer_rules **out)
{
    const answer_spec spec = {.what = s->file,
                              .extract = s->extract,
                              .extract_last = s->extract_last,
                              .ignore = s->ignore,
                              .match = s->match,
                              .ignore_case = s->ignore_case,
                              .ignore_punctuation = s->ignore_punctuation,
                              .ignore_numbers = s->ignore_numbers};
    return answer_rules_open(a, &spec, out);
}

static status all_compare(grading *g)
{
    const task_spec *s = g->spec;
    TRY(rules_open(g->a, s, &g->rules));
    for (int64_t i = 0; i < g->prompts->count; i++) {
        task_prompt *p = &g->prompts->items[i];
        for (int64_t k = 0; k < s->samples; k++) {
            task_answer *x = &p->answers[k];
            const answer_text of = {.bytes = x->text, .count = x->bytes};
            if (s->target != NULL) TRY(answer_compare(g, p, x));
            if (s->match.count > 0) TRY(answer_matches(g->rules, of, &x->is_matched));
        }
    }
    return ST_OK;
}

// ---- the command --------------------------------------------------------------------------------

static status program_render(grading *g, const task_prompt *p, const task_answer *x, text *out)
{
    json *item = NULL;
    task_reading *r = &g->reading;
    r->path = g->spec->data;
    r->line = p->line_number;
    TRY(json_parse_row(p->line, p->line_bytes, r->path, r->line, NULL, &item));
    const status st = task_render(r, g->program, item, x->text, out);
    json_free(item);
    return st;
}

static void command_ended(const sandbox_result *r, task_answer *x)
{
    x->is_passed = r->end == SANDBOX_EXITED && r->code == 0;
    if (r->end == SANDBOX_TIMED_OUT) {
        (void)snprintf(x->ended, sizeof(x->ended), "time limit");
    } else {
        (void)snprintf(x->ended, sizeof(x->ended), "%s %d",
                       r->end == SANDBOX_EXITED ? "exit" : "signal", r->code);
    }
}

enum { TRIED_AT_ONCE = 64 }; // programs in memory

static status some_try(grading *g, int64_t begin, int64_t count)
{
    sandbox_file files[TRIED_AT_ONCE];
    sandbox_job jobs[TRIED_AT_ONCE];
    sandbox_result results[TRIED_AT_ONCE];
    const task_spec *s = g->spec;
    const sandbox_spec spec = {.limits = {.time_ns = s->time_limit_ns,
                                          .memory_bytes = s->memory_limit_bytes,
                                          .processes = s->process_limit,
                                          .output_bytes = 1},
                               .at_once = g->processors};
    arena_reset(g->reading.scratch);
    for (int64_t i = 0; i < count; i++) {
        const task_prompt *p = &g->prompts->items[(begin + i) / s->samples];
        text program;
        TRY(program_render(g, p, &p->answers[(begin + i) % s->samples], &program));
        files[i] = (sandbox_file){
            .name = s->program_file, .bytes = program.bytes, .count = program.length};
        jobs[i] = (sandbox_job){.command = s->command, .files = &files[i], .file_count = 1};
    }
    TRY(sandbox_run(g->h, g->reading.scratch, &spec, jobs, count, results));
    for (int64_t i = 0; i < count; i++) {
        const task_prompt *p = &g->prompts->items[(begin + i) / s->samples];
        command_ended(&results[i], &p->answers[(begin + i) % s->samples]);
        g->out->confined &= results[i].confined;
    }
    return ST_OK;
}

static status all_try(grading *g)
{
    const int64_t all = g->prompts->count * g->spec->samples;
    g->out->confined = SANDBOX_ALL;
    TRY(jinja_parse(g->a, g->spec->program, (int64_t)strlen(g->spec->program), "program",
                    &g->program));
    for (int64_t done = 0; done < all;) {
        const int64_t count = min_i64(TRIED_AT_ONCE, all - done);
        TRY(some_try(g, done, count));
        done += count;
        if (g->watcher != NULL && g->watcher->scored(g->watcher->context, "programs", done, all)) {
            return fail(ST_STOPPED, "after %lld of %lld programs", (long long)done, (long long)all);
        }
    }
    return ST_OK;
}

// ---- the result ---------------------------------------------------------------------------------

typedef bool (*is_good)(const task_answer *x);
static bool is_right(const task_answer *x)
{
    return x->is_right[ANSWER_FIRST];
}
static bool is_right_last(const task_answer *x)
{
    return x->is_right[ANSWER_LAST];
}
static bool is_matched(const task_answer *x)
{
    return x->is_matched;
}
static bool is_passed(const task_answer *x)
{
    return x->is_passed;
}

static int64_t good_count(const task_spec *s, const task_prompt *p, is_good good)
{
    int64_t count = 0;
    for (int64_t i = 0; i < s->samples; i++) count += good(&p->answers[i]) ? 1 : 0;
    return count;
}

// The chance that one of k of n answers is right, of which c are: 1 - C(n - c, k) / C(n, k).
// Chen et al. 2021, arXiv:2107.03374.
static double pass_chance(int64_t n, int64_t c, int64_t k)
{
    double none = 1.0;
    if (n - c < k) return 1.0;
    for (int64_t i = n - c + 1; i <= n; i++) none *= 1.0 - (double)k / (double)i;
    return 1.0 - none;
}

// The mean over items of pass@k; for k = 1 of the share of right answers.
static task_share mean_of(const grading *g, is_good good, int64_t k)
{
    const int64_t n = g->prompts->count, samples = g->spec->samples;
    double sum = 0.0, squares = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += pass_chance(samples, good_count(g->spec, &g->prompts->items[i], good), k);
    }
    const double mean = sum / (double)n;
    for (int64_t i = 0; i < n; i++) {
        const double off =
            pass_chance(samples, good_count(g->spec, &g->prompts->items[i], good), k) - mean;
        squares += off * off;
    }
    const double error = n > 1 ? sqrt(squares / (double)(n - 1) / (double)n) : 0.0;
    return (task_share){.value = mean, .error = error};
}

status task_values(arena *a, const task_spec *spec, const task_prompts *prompts, const char *metric,
                   double **out)
{
    static const struct {
        const char *name;
        is_good good;
    } rows[] = {{"exact_match", is_right},
                {"exact_match_last", is_right_last},
                {"matched", is_matched},
                {"passed", is_passed}};
    *out = NULL;
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        if (strcmp(rows[i].name, metric) != 0) continue;
        TRY(arena_new(a, prompts->count, out));
        for (int64_t k = 0; k < prompts->count; k++) {
            const int64_t good = good_count(spec, &prompts->items[k], rows[i].good);
            (*out)[k] = (double)good / (double)spec->samples;
        }
    }
    return ST_OK;
}

static void result_set(const grading *g)
{
    static const task_share none = {.value = -1.0};
    const task_spec *s = g->spec;
    task_result *out = g->out;
    const bool has_last = s->target != NULL && s->extract_last != NULL;
    out->items = g->prompts->count;
    out->cut = g->prompts->cut;
    out->exact = s->target != NULL ? mean_of(g, is_right, 1) : none;
    out->exact_last = has_last ? mean_of(g, is_right_last, 1) : none;
    out->matched = s->match.count > 0 ? mean_of(g, is_matched, 1) : none;
    out->passed = s->command != NULL ? mean_of(g, is_passed, 1) : none;
    for (int64_t i = 0; i < s->pass.count; i++) {
        int64_t k = 1;
        const bool is_number = text_parse_i64(s->pass.items[i], &k);
        ASSERT(is_number);
        out->pass[i] = mean_of(g, s->command != NULL ? is_passed : is_right, k);
    }
    for (int64_t i = 0; i < out->items; i++) {
        const task_prompt *p = &g->prompts->items[i];
        for (int64_t k = 0; k < s->samples; k++) out->long_ends += p->answers[k].by_length ? 1 : 0;
    }
}

status task_grade_check(const host *h, arena *a, const task_spec *spec)
{
    answer_rules *rules = NULL;
    jinja_template *program = NULL;
    const sandbox_spec sandbox = {.at_once = 1};
    const sandbox_job job = {.command = "true"};
    sandbox_result result;
    TRY(rules_open(a, spec, &rules));
    answer_rules_close(rules);
    if (spec->command == NULL) return ST_OK;
    TRY(jinja_parse(a, spec->program, (int64_t)strlen(spec->program), "program", &program));
    return sandbox_run(h, a, &sandbox, &job, 1, &result);
}

status task_grade(const host *h, arena *a, const task_spec *spec, task_prompts *prompts,
                  int64_t processors, const task_watcher *watcher, task_result *out)
{
    grading g = {.h = h,
                 .a = a,
                 .spec = spec,
                 .prompts = prompts,
                 .processors = processors,
                 .watcher = watcher,
                 .reading = {.a = a, .spec = spec},
                 .out = out};
    *out = (task_result){.confined = SANDBOX_ALL};
    TRY(arena_create("grade", TASK_SCRATCH_BYTES_MAX, &g.reading.scratch));
    status st = ST_OK;
    if (spec->target != NULL || spec->match.count > 0) st = all_compare(&g);
    if (st == ST_OK && spec->command != NULL) st = all_try(&g);
    answer_rules_close(g.rules);
    arena_destroy(g.reading.scratch);
    TRY(st);
    result_set(&g);
    return ST_OK;
}
