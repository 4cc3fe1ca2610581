// `explain claims`: shows claims about large runs and this program's figures for them.
#include "cli/embedded.h"
#include "cli/explain/claims.h"
#include "cli/explain/explain.h"
#include "cli/wrap.h"

static status json_print(cli_context *cli, const claim_list *l, const int64_t counts[])
{
    text t = {.a = cli->a};
    TRY(text_add(&t, "{\"claims\": ["));
    for (int64_t i = 0; i < l->count; i++) {
        const claim_answer *c = &l->items[i];
        const char *const members[][2] = {{"claim", c->claim},
                                          {"inputs", c->inputs},
                                          {"computed", c->computed},
                                          {"verdict", claim_verdict_name(c->verdict)},
                                          {"why", c->why}};
        TRY(text_add(&t, "%s\n  {", i == 0 ? "" : ","));
        for (int64_t k = 0; k < COUNT_OF(members); k++) {
            TRY(text_add(&t, "%s\"%s\": ", k == 0 ? "" : ", ", members[k][0]));
            TRY(text_add_json(&t, members[k][1]));
        }
        TRY(text_add(&t, "}"));
    }
    TRY(text_add(&t, "],\n\"counts\": {"));
    for (int v = 0; v < CLAIM_VERDICT_COUNT; v++) {
        TRY(text_add(&t, "%s\"%s\": %lld", v == 0 ? "" : ", ", claim_verdict_name((claim_verdict)v),
                     (long long)counts[v]));
    }
    TRY(text_add(&t, "}}\n"));
    cli_print_text(cli, &t);
    return ST_OK;
}

static status line_add(cli_context *cli, text *t, const char *head, const char *words)
{
    char *all = NULL;
    if (*words == '\0') return ST_OK;
    TRY(arena_format(cli->a, &all, "%s%s", head, words));
    TRY(text_add(t, "   "));
    TRY(wrap_sentences(t, all, 5, min_i64(cli->columns, 100) > 43 ? cli->columns - 3 : 40));
    return text_add(t, "\n");
}

static status lines_print(cli_context *cli, const claim_list *l, const int64_t counts[])
{
    static const char *const heads[] = {"holds", "holds only if", "wrong", "not known publicly"};
    text t = {.a = cli->a};
    for (int64_t i = 0; i < l->count; i++) {
        const claim_answer *c = &l->items[i];
        char *head = NULL;
        TRY(arena_format(cli->a, &head, "%s: \"%s\"", heads[c->verdict], c->claim));
        TRY(wrap_sentences(&t, head, 2, cli->columns));
        TRY(text_add(&t, "\n"));
        TRY(line_add(cli, &t, "is    ", c->computed));
        TRY(line_add(cli, &t, "from  ", c->inputs));
        TRY(line_add(cli, &t, "for   ", c->why));
        TRY(text_add(&t, "\n"));
    }
    TRY(text_add(&t, "%lld claims:", (long long)l->count));
    for (int v = 0; v < CLAIM_VERDICT_COUNT; v++) {
        TRY(text_add(&t, "%s %lld %s", v == 0 ? "" : " ·", (long long)counts[v],
                     claim_verdict_name((claim_verdict)v)));
    }
    TRY(text_add(&t, "\n"));
    cli_print_text(cli, &t);
    return ST_OK;
}

status explain_claims(cli_context *cli, const char *more, bool as_json)
{
    claim_list l = {0};
    char *yaml = NULL;
    int64_t bytes = 0, counts[CLAIM_VERDICT_COUNT] = {0};
    TRY(cli_embedded_read(cli->a, "claims.yaml", &yaml, &bytes));
    TRY(claims_answer(cli->h, cli->a, yaml, bytes, "claims.yaml", &l));
    if (more != NULL) {
        TRY(host_read_text(cli->h, cli->a, more, CLAIMS_BYTES, &yaml, &bytes));
        TRY(claims_answer(cli->h, cli->a, yaml, bytes, more, &l));
    }
    for (int64_t i = 0; i < l.count; i++) counts[l.items[i].verdict]++;
    return as_json ? json_print(cli, &l, counts) : lines_print(cli, &l, counts);
}
