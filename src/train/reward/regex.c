// A pattern occurs in the completion. "{answer}" in it is the prompt's answer, letter by letter.
#include "base/text.h"
#include "train/reward/pattern.h"
#include "train/reward/reward.h"

#include <string.h>

static const char place[] = "{answer}";
static const char special[] = "^.[$()|*+?{\\#-]} ";

// Appends the answer so that each of its characters stands for itself.
static status literal_add(text *t, const char *answer)
{
    for (; *answer != '\0'; answer++) {
        if (strchr(special, *answer) != NULL) TRY(text_add(t, "\\"));
        TRY(text_add_bytes(t, answer, 1));
    }
    return ST_OK;
}

static status filled(const char *pattern, const char *answer, text *t)
{
    const char *from = pattern, *at = NULL;
    while ((at = strstr(from, place)) != NULL) {
        TRY(text_add_bytes(t, from, at - from));
        TRY(literal_add(t, answer != NULL ? answer : ""));
        from = at + strlen(place);
    }
    return text_add(t, "%s", from);
}

static status check(const reward_context *x, text *warning)
{
    (void)warning;
    arena *a = NULL;
    TRY(arena_create("pattern", 0, &a));
    text t = {.a = a};
    status st = filled(x->keys->pattern, "0", &t);
    if (st == ST_OK) st = reward_pattern_check(t.bytes);
    arena_destroy(a);
    return st;
}

static status score(const reward_context *x, const reward_case *c, double *out)
{
    arena *a = NULL;
    pattern_match found = {.any = false};
    TRY(arena_create("pattern", 0, &a));
    text t = {.a = a};
    status st = filled(x->keys->pattern, c->answer, &t);
    if (st == ST_OK) st = reward_pattern_last(t.bytes, c->completion, &found);
    arena_destroy(a);
    if (st == ST_OK) *out = found.any ? 1.0 : 0.0;
    return st;
}

const reward_rule reward_regex = {.name = "regex", .check = check, .one = score};
