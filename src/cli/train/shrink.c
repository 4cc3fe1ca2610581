// Candidates in the order of preference; the first one that the checks of a run accept is taken.
// All ranks then verify its plans before its first step, as those of any layout.
#include "cli/train/shrink.h"

#include "base/text.h"

typedef struct candidate {
    int64_t dp, tp, pp, cp;
} candidate;

// Switches that need several data-parallel ranks; the later ones are taken only if the earlier ones
// are refused.
static const char *const fewer[][3] = {
    {NULL}, {"layout.zero=0", NULL}, {"layout.zero=0", "sdc.digests=0", NULL}};

static status keys_make(arena *a, const candidate *c, cli_layout *out)
{
    const char *const names[] = {"dp", "tp", "pp", "cp"};
    const int64_t values[] = {c->dp, c->tp, c->pp, c->cp};
    text words = {.a = a};
    out->key_count = 0;
    for (int i = 0; i < COUNT_OF(names); i++) {
        char *key = NULL;
        TRY(arena_format(a, &key, "layout.%s=%lld", names[i], (long long)values[i]));
        out->keys[out->key_count++] = key;
        if (values[i] == 1 && i > 0) continue;
        TRY(text_add(&words, "%s%s %lld", words.length > 0 ? ", " : "", names[i],
                     (long long)values[i]));
    }
    out->words = words.bytes;
    return ST_OK;
}

// True if a run with these keys would be accepted.
static bool is_accepted(cli_context *cli, const cli_start *order, const cli_layout *l)
{
    const char **keys = NULL;
    run_config r;
    config *c = NULL;
    error_record why;
    const int64_t own = order->key_count;
    status st = arena_new(cli->a, own + l->key_count + 1, &keys);
    for (int64_t i = 0; i < own && st == ST_OK; i++) keys[i] = order->keys[i];
    for (int64_t i = 0; i < l->key_count && st == ST_OK; i++) keys[own + i] = l->keys[i];
    if (st == ST_OK) {
        st = run_config_load(cli->h, cli->a, order->yaml, keys, own + l->key_count, &r, &c);
    }
    if (st == ST_OK) st = train_prepare(cli->h, cli->a, &r);
    if (st != ST_OK) error_take(&why);
    return st == ST_OK && run_config_ranks(&r) == l->ranks;
}

static status candidate_try(cli_context *cli, const cli_start *order, const candidate *c,
                            cli_layout *out, bool *found)
{
    for (int i = 0; i < COUNT_OF(fewer) && !*found; i++) {
        out->ranks = c->dp * c->tp * c->pp * c->cp;
        TRY(keys_make(cli->a, c, out));
        for (int k = 0; fewer[i][k] != NULL; k++) out->keys[out->key_count++] = fewer[i][k];
        *found = is_accepted(cli, order, out);
    }
    return ST_OK;
}

// The next combination that keeps more of tp than of pp, and more of pp than of cp; false: none.
static bool candidate_next(const run_config *r, candidate *c)
{
    do {
        if (--c->cp < 1) {
            c->cp = r->layout.cp;
            if (--c->pp < 1) {
                c->pp = r->layout.pp;
                if (--c->tp < 1) return false;
            }
        }
    } while (r->layout.tp % c->tp != 0 || r->layout.pp % c->pp != 0 || r->layout.cp % c->cp != 0);
    return true;
}

status cli_shrink(cli_context *cli, const cli_start *order, int64_t available, cli_layout *out)
{
    const run_config *r = order->r;
    candidate c = {r->layout.dp, r->layout.tp, r->layout.pp, r->layout.cp};
    bool found = false;
    *out = (cli_layout){.ranks = run_config_ranks(r)};
    if (available >= out->ranks) {
        TRY(keys_make(cli->a, &c, out));
        out->key_count = 0;
        return ST_OK;
    }
    do {
        c.dp = min_i64(available / (c.tp * c.pp * c.cp), r->layout.dp);
        for (; c.dp >= 1 && !found; c.dp--) TRY(candidate_try(cli, order, &c, out, &found));
    } while (!found && candidate_next(r, &c));
    out->unused = available - out->ranks;
    if (found) return ST_OK;
    return fail(ST_CONFIG_CONFLICT,
                "no layout of at most %lld ranks is possible for this run, which has %lld",
                (long long)available, (long long)run_config_ranks(r));
}
