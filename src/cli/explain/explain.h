// What `explain` knows of a run before any rank is started, and the ways to show it.
//
// explain.c gathers: configuration, model, mesh, where the layers stand, the pipeline simulated in virtual
// time, and, for ranks that are asked for, their plans. explain_text.c, explain_svg.c and explain_rank.c
// show it. All but plans is arithmetic on the mesh, so one rank of 65,536 costs as much as one of two.
#ifndef CLI_EXPLAIN_EXPLAIN_H
#define CLI_EXPLAIN_EXPLAIN_H

#include "assemble/assemble.h"
#include "cli/cli.h"
#include "model/model.h"
#include "plan/pipeline.h"
#include "plan/schedule/timeline.h"

enum {
    EXPLAIN_STAGES = 64
}; // of pp, that tables and pictures show; more are left out in the middle

// The bytes of one rank.
typedef struct explain_bytes {
    int64_t rank;
    int64_t kind[BYTES_KIND_COUNT]; // at its fullest moment
    int64_t all;                    // its arena, and the copy that is saved beside training
    int64_t snapshot;
} explain_bytes;

typedef struct explain {
    cli_context *cli;
    run_config *r;
    decoder_spec spec;
    bool vocab_is_known; // else the tokenizer could not be opened, and the preset's is taken
    plan_mesh mesh;      // as rank 0 sees it
    int64_t ranks;
    op_model *model; // all of it
    plan_pipeline pipe;
    const plan_schedule *schedule; // of one stage: 1f1b
    const timeline_cost *costs;    // [virtual stage] by FLOPs of its layers
} explain;

// Reads CONFIG (a file, a run, a folder of `init`) with the keys over it.
NODISCARD status explain_open(cli_context *cli, const cli_call *call, explain *out);
// Micro-batches of a step on one rank of dp, which a plan decides.
NODISCARD status explain_stages(explain *x, int64_t microbatches);
// The plans of a rank, in an arena of the caller's.
NODISCARD status explain_plans(const explain *x, arena *a, int64_t rank, assemble_plans **out);
explain_bytes explain_bytes_of(const assemble_plans *plans, int64_t rank);
// The step simulated: by FLOPs, or every forward, input and weight gradient as long as any other.
typedef enum explain_price { PRICE_FLOPS, PRICE_EQUAL } explain_price;
// Of at least `least` micro-batches, not all that the step has; 0: all.
NODISCARD status explain_simulate(const explain *x, explain_price price, int64_t least,
                                  plan_timeline **out);

// "embed, 0 to 7", of a virtual stage. Returns buffer.
const char *explain_layers(const explain *x, int32_t stage, char buffer[64]);
// "dp 2 · tp 4 ..." and "41,237".
const char *explain_count(int64_t value, char buffer[32]);

// Whole runs: as text, and as one picture.
NODISCARD status explain_print(const explain *x, explain_price price, const explain_bytes *bytes,
                               int32_t count);
NODISCARD status explain_svg(const explain *x, explain_price price, const explain_bytes *bytes,
                             int32_t count, text *out);
extern const uint32_t explain_bytes_colours[BYTES_KIND_COUNT];
// One rank of pp: what it does in a step, as long as that is not too much to simulate.
NODISCARD status explain_row(const explain *x, int32_t pp);
// Figures that people quote, with verdicts (claims.h); `more`: a user's file of them, NULL for none.
NODISCARD status explain_claims(cli_context *cli, const char *more, bool as_json);
// What the catalogue holds, or one entry of it: a cluster, a device, a run. name NULL: all.
NODISCARD status explain_catalog(cli_context *cli, const char *name);
// A run on a cluster of the catalogue, simulated: as text and, where `svg` is not NULL, as one picture.
NODISCARD status explain_cluster(cli_context *cli, const cli_call *call, const char *machine,
                                 const char *svg);
// One rank of the job.
NODISCARD status explain_rank_page(const explain *x, const assemble_plans *plans, int64_t rank);

#endif
