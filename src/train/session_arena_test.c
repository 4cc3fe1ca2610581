// Each stage of a pipeline says which bytes of its own memory hold what.
#include "base/format/json.h"
#include "fixtures/train/test_ranks.h"

#include <unistd.h>

// The first bytes of the rank's moments, and where they lie; *weights: bytes of its weights.
static int64_t moments_of(const char *run, int rank, int64_t *weights)
{
    char path[160];
    json *said = NULL;
    int64_t first = -1;
    (void)snprintf(path, sizeof(path), "%s/%s/logs/arenas/%d.json", test_folder, run, rank);
    assert_int_equal(json_read(host_real(), path, 1 << 20, &said), ST_OK);
    assert_int_equal(json_int(json_get(said, "process"), 0), getpid());
    assert_true(json_int(json_get(said, "address"), 0) > 0);
    const json *list = json_get(said, "tensors");
    *weights = 0;
    for (int64_t i = 1; i < json_count(list); i++) {
        const json *t = json_at(list, i);
        const char *kind = json_text(json_get(t, "kind"), "");
        const int64_t at = json_int(json_get(t, "offset"), -1);
        const int64_t bytes = json_int(json_get(t, "bytes"), -1);
        assert_true(at >= 0 && at + bytes <= json_int(json_get(said, "bytes"), 0));
        if (strcmp(json_text(json_get(t, "lifetime"), ""), "run") != 0) continue;
        if (strcmp(kind, "weights") == 0) *weights += bytes;
        if (strcmp(kind, "moments") == 0 && first < 0) first = at;
    }
    json_free(said);
    return first;
}

static void each_stage_tells_its_own_memory(void **state)
{
    (void)state;
    static const char *const keys[] = {"layout.pp=2", "model.layers=3", "kernels.threads=1",
                                       "train.steps=1"};
    char path[160];
    file_info info;
    int64_t weights[2];
    assert_int_equal(ranks_run("untold", keys, 4, 2, "auto", 0, NULL), ST_OK);
    (void)snprintf(path, sizeof(path), "%s/untold/logs/arenas", test_folder);
    assert_int_equal(host_real()->api->path_info(host_real(), path, &info), ST_OK);
    assert_int_equal(info.kind, FILE_KIND_NONE); // chaos did not make it
    (void)snprintf(path, sizeof(path), "%s/staged/logs/arenas", test_folder);
    assert_int_equal(host_real()->api->path_mkdir(host_real(), path), ST_OK);
    assert_int_equal(ranks_run("staged", keys, 4, 2, "auto", 0, NULL), ST_OK);
    const int64_t first = moments_of("staged", 0, &weights[0]);
    const int64_t second = moments_of("staged", 1, &weights[1]);
    assert_true(first > 0 && second > 0 && first != second);
    assert_true(weights[0] > 0 && weights[1] > 0 && weights[0] != weights[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_stage_tells_its_own_memory)};
    return cmocka_run_group_tests(tests, test_run_setup, test_run_teardown);
}
