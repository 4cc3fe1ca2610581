// `verify`: checks that the plans of all ranks of a configuration fit together. Starts nothing.
#include "cli/commands.h"
#include "cli/model_folder.h"
#include "cli/plan/plan.h"
#include "cli/run_folder.h"
#include "cli/run_model.h"
#include "diagnose/verify.h"
#include "model/model.h"

static void print_peaks(cli_context *cli, const assemble_proved *v)
{
    for (int64_t first = 0, end = 0; first < v->ranks; first = end) {
        char bytes[32];
        for (end = first + 1; end < v->ranks && v->peak_bytes[end] == v->peak_bytes[first];) end++;
        (void)text_bytes_human(v->peak_bytes[first], bytes);
        if (end - first == 1) {
            cli_print(cli, "  rank %lld  peak %s, %lld bytes\n", (long long)first, bytes,
                      (long long)v->peak_bytes[first]);
        } else {
            cli_print(cli, "  ranks %lld to %lld  peak %s, %lld bytes each\n", (long long)first,
                      (long long)(end - 1), bytes, (long long)v->peak_bytes[first]);
        }
    }
}

static status run(cli_context *cli, const cli_call *call)
{
    enum { VOCAB_ANY = 1 << 16 }; // stands for that of a tokenizer that is missing
    const char *path = NULL;
    bool is_resolved = false;
    run_config r = {0};
    config *c = NULL;
    decoder_spec spec;
    assemble_proved v;
    text layout = {.a = cli->a};
    TRY(cli_config_file(cli, call->operands[0], &path, &is_resolved));
    TRY(run_config_load(cli->h, cli->a, path, call->keys, call->key_count, &r, &c));
    cli_warn_unread(cli, call->keys, call->key_count, RUN_READER_PLAN);
    TRY(plan_micro_batch_here(cli, NULL, &r));
    bool is_known = false;
    TRY(cli_run_model(cli, &r, &spec, &is_known));
    const bool any = !is_known && spec.vocab == 0;
    if (any) {
        r.model.vocab = VOCAB_ANY;
        TRY(model_spec_from_config(cli->h, cli->a, &r, &spec));
    }
    TRY(diagnose_verify(cli->h, cli->a, &r, &spec, &v));
    TRY(run_config_print_layout(&r, &layout));
    const long long ranks = (long long)run_config_ranks(&r);
    cli_print(cli, "sound    %s, %lld rank%s, %lld sequences per step in micro-batches of %lld\n",
              layout.bytes, ranks, text_plural(ranks, "s"), (long long)run_config_batch_max(&r),
              (long long)v.micro_batch);
    if (v.dp > 0) {
        cli_print(
            cli,
            "by       dp %lld of the same layout: plans of more ranks differ only in numbers\n",
            (long long)v.dp);
    }
    cli_print(cli,
              "proved   %lld plan%s: %lld actions, %lld waits, %lld collectives, %lld sums of "
              "gradients; made in %.0f ms, proved in %.1f ms\n",
              (long long)v.plans, v.plans == 1 ? "" : "s of each rank", (long long)v.actions,
              (long long)v.waits, (long long)v.rendezvous, (long long)v.sums, v.make_s * 1e3,
              v.prove_s * 1e3);
    if (any) {
        cli_print(cli, "model    with a vocabulary of %d, because the tokenizer is missing\n",
                  VOCAB_ANY);
    }
    if (v.dp == 0) print_peaks(cli, &v);
    return ST_OK;
}

const cli_command cli_command_verify = {
    .name = "verify",
    .summary = "prove that the plans of all ranks fit together",
    .synopsis = "CONFIG|RUN [key.path=value ...]",
    .about =
        "Makes the plans of every rank of the layout, starts nothing, and proves that collectives "
        "match on all their ranks, in one order and with equal shapes; that no rank waits for ever "
        "under any timing; that no bytes are read before they are written or reused while in use; "
        "and that every gradient is reduced exactly once, with determinism=strict in the fixed "
        "order. Prints the peak bytes of each rank. Exit code 3: the configuration has no plan; 8: "
        "the plan is broken, and the message names two actions. train does the same before it "
        "starts.",
    .examples = "  trireme verify demo/config.yaml layout.dp=2 layout.zero=1\n"
                "  trireme verify demo/config.yaml layout.pp=4 layout.schedule=mine.txt\n",
    .operand_min = 1,
    .operand_max = 1,
    .takes_keys = true,
    .run = run,
};
