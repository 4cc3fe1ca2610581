// The best of several sequences of a prompt: the most probable ones, or those that most agree with.
#include "serve/job.h"

#include <string.h>

typedef struct candidate {
    sequence *q;
    char *answer; // what it says in the end; where majorities count
    int64_t votes;
} candidate;

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

// The last number without its commas, or else the last line that is not blank.
static status answer_of(arena *a, const sequence *q, char **out)
{
    const char *bytes = q->grown.text.items;
    int64_t end = q->grown.certain, n = 0;
    while (end > 0 && !is_digit(bytes[end - 1])) end--;
    int64_t begin = end;
    const bool is_number = end > 0;
    if (is_number) {
        // A comma or a point belongs to the number only between digits.
        while (begin > 0 && (is_digit(bytes[begin - 1]) ||
                             ((bytes[begin - 1] == ',' || bytes[begin - 1] == '.') && begin > 1 &&
                              is_digit(bytes[begin - 2])))) {
            begin--;
        }
        if (begin > 0 && bytes[begin - 1] == '-') begin--;
    } else {
        end = q->grown.certain;
        while (end > 0 && text_is_blank(bytes[end - 1])) end--;
        for (begin = end; begin > 0 && bytes[begin - 1] != '\n';) begin--;
        while (begin < end && text_is_blank(bytes[begin])) begin++;
    }
    TRY(arena_new(a, end - begin + 1, out));
    for (int64_t i = begin; i < end; i++) {
        if (!is_number || bytes[i] != ',') (*out)[n++] = bytes[i];
    }
    return ST_OK;
}

static double mean_log_p(const sequence *q)
{
    return q->log_p / (double)max_i64(1, q->draws);
}

// Equal ones stay in their order.
static bool is_better(const candidate *a, const candidate *b)
{
    if (a->votes != b->votes) return a->votes > b->votes;
    return mean_log_p(a->q) > mean_log_p(b->q);
}

static void vote(candidate *all, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        for (int64_t k = 0; k < count; k++) {
            all[i].votes += strcmp(all[i].answer, all[k].answer) == 0 ? 1 : 0;
        }
    }
}

static status prompt_choose(job *j, sequence *drawn)
{
    const serve_request *r = &j->r;
    candidate *all = NULL;
    TRY(arena_new(j->a, r->drawn, &all));
    for (int64_t i = 0; i < r->drawn; i++) {
        all[i].q = &drawn[i];
        if (r->by_majority) TRY(answer_of(j->a, &drawn[i], &all[i].answer));
    }
    if (r->by_majority) vote(all, r->drawn);
    for (int64_t i = 1; i < r->drawn && (r->by_majority || r->drawn > r->choices); i++) {
        const candidate one = all[i];
        int64_t at = i;
        for (; at > 0 && is_better(&one, &all[at - 1]); at--) all[at] = all[at - 1];
        all[at] = one;
    }
    for (int64_t i = 0; i < r->choices; i++) {
        all[i].q->index = j->best_count;
        j->best[j->best_count++] = all[i].q;
    }
    return ST_OK;
}

status job_choose(job *j)
{
    TRY(arena_new(j->a, j->r.prompt_count * j->r.choices, &j->best));
    for (int64_t p = 0; p < j->r.prompt_count; p++) {
        TRY(prompt_choose(j, j->sequences + p * j->r.drawn));
    }
    return ST_OK;
}
