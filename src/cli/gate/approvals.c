// Approvals: signatures of the statement by ssh keys, as `ssh-keygen -Y sign` makes them.
//
// ssh-keygen verifies them, in the sandbox: its input comes from people, and it needs nothing but
// three files.
#include "cli/gate/gate.h"

#include "sandbox/sandbox.h"

#include <stdio.h>
#include <string.h>

enum { SIGNATURE_BYTES_MAX = 1 << 16, SIGNERS_BYTES_MAX = 1 << 24, SIGNATURES_MAX = 64 };

static const char command[] =
    "command -v ssh-keygen >/dev/null || exit 99\n"
    "who=$(ssh-keygen -Y find-principals -s signature -f signers | head -n 1) && [ -n \"$who\" ] &&\n"
    "ssh-keygen -Y verify -f signers -I \"$who\" -n trireme-gate -s signature <statement >/dev/null &&\n"
    "printf %s \"$who\"\n";

typedef struct signature {
    const char *name;
    char *bytes;
    int64_t count;
    sandbox_file files[3];
} signature;

static status signatures_read(gate *g, signature *list, int64_t *count)
{
    file_names names;
    const host *h = g->cli->h;
    TRY(h->api->path_list(h, g->cli->a, g->folder, &names));
    *count = 0;
    for (int64_t i = 0; i < names.count && *count < SIGNATURES_MAX; i++) {
        const size_t n = strlen(names.names[i]);
        char *path = NULL;
        signature *s = &list[*count];
        if (n < 5 || strcmp(names.names[i] + n - 4, ".sig") != 0) continue;
        TRY(path_join(g->cli->a, g->folder, names.names[i], &path));
        TRY(host_read_all(h, g->cli->a, path, SIGNATURE_BYTES_MAX, &s->bytes, &s->count));
        s->name = names.names[i];
        (*count)++;
    }
    return ST_OK;
}

static bool is_new(const sandbox_result *results, int64_t i)
{
    for (int64_t k = 0; k < i; k++) {
        if (results[k].code == 0 && results[k].end == SANDBOX_EXITED &&
            strcmp(results[k].out, results[i].out) == 0) {
            return false;
        }
    }
    return true;
}

static status counted(gate *g, const signature *list, const sandbox_result *results, int64_t count)
{
    text who = {.a = g->cli->a};
    int64_t good = 0;
    TRY(text_add(&who, "%s", ""));
    for (int64_t i = 0; i < count; i++) {
        const sandbox_result *r = &results[i];
        if (r->end == SANDBOX_EXITED && r->code == 99) {
            return fail(ST_NOT_FOUND,
                        "approvals are verified by ssh-keygen, which is not installed");
        }
        const bool is_good = r->end == SANDBOX_EXITED && r->code == 0 && r->out_bytes > 0;
        if (is_good && !is_new(results, i)) continue;
        TRY(text_add(&who, "%s%s%s", who.length > 0 ? ", " : "", is_good ? r->out : list[i].name,
                     is_good ? "" : " (no valid signature)"));
        good += is_good ? 1 : 0;
    }
    char what[64];
    (void)snprintf(what, sizeof(what), "%lld approval%s", (long long)g->policy.approvals,
                   text_plural(g->policy.approvals, "s"));
    return gate_check_add(g, "approval", what, good >= g->policy.approvals, "%lld%s%.400s",
                          (long long)good, who.length > 0 ? ": " : "", who.bytes);
}

status gate_approvals_check(gate *g)
{
    signature list[SIGNATURES_MAX];
    sandbox_job jobs[SIGNATURES_MAX];
    sandbox_result results[SIGNATURES_MAX];
    char *signers = NULL;
    int64_t count = 0, signers_bytes = 0;
    text statement = {.a = g->cli->a};
    const sandbox_spec spec = {.limits = {.time_ns = INT64_C(60000000000)}, .at_once = 1};
    if (g->policy.approvals == 0) return ST_OK;
    TRY(gate_statement(g, &statement));
    TRY(host_read_text(g->cli->h, g->cli->a, g->policy.signers, SIGNERS_BYTES_MAX, &signers,
                       &signers_bytes));
    TRY(signatures_read(g, list, &count));
    for (int64_t i = 0; i < count; i++) {
        signature *s = &list[i];
        s->files[0] = (sandbox_file){"signature", s->bytes, s->count};
        s->files[1] = (sandbox_file){"signers", signers, signers_bytes};
        s->files[2] = (sandbox_file){"statement", statement.bytes, statement.length};
        jobs[i] = (sandbox_job){.command = command, .files = s->files, .file_count = 3};
    }
    TRY(sandbox_run(g->cli->h, g->cli->a, &spec, jobs, count, results));
    return counted(g, list, results, count);
}
