// Collectives of an MPI library, beside `trireme bench comm`: the same operations, ranks and sizes.
//
//   mpicc -O2 bench/peers/mpi_comm.c -o mpi_comm
//   mpirun -n 2 --bind-to core mpi_comm all_reduce 8,65536,1048576
//
// A row per size in JSON lines: median time of enough calls for a quarter of a second, and bus bandwidth as
// nccl-tests defines it; bytes are those of the whole operand.
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void run(const char *op, float *in, float *out, int count, int piece)
{
    const MPI_Comm all = MPI_COMM_WORLD;
    if (strcmp(op, "all_reduce") == 0)
        MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, all);
    else if (strcmp(op, "reduce_scatter") == 0)
        MPI_Reduce_scatter_block(in, out, piece, MPI_FLOAT, MPI_SUM, all);
    else if (strcmp(op, "all_gather") == 0)
        MPI_Allgather(in, piece, MPI_FLOAT, out, piece, MPI_FLOAT, all);
    else if (strcmp(op, "all_to_all") == 0)
        MPI_Alltoall(in, piece, MPI_FLOAT, out, piece, MPI_FLOAT, all);
    else
        MPI_Barrier(all);
}

static void size_run(const char *op, long bytes, int rank, int ranks)
{
    enum { CALLS = 5000 };
    static double times[CALLS];
    const long piece = bytes / 4 / ranks > 0 ? bytes / 4 / ranks : 1;
    const long count = bytes / 4 > 0 ? bytes / 4 : 1, most = count > piece * ranks ? count : piece * ranks;
    float *in = calloc((size_t)most, sizeof(float)), *out = calloc((size_t)most, sizeof(float));
    if (in == NULL || out == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
    for (long i = 0; i < most; i++) in[i] = out[i] = 1; // touched
    run(op, in, out, (int)count, (int)piece);
    double begin = MPI_Wtime();
    run(op, in, out, (int)count, (int)piece);
    double once = MPI_Wtime() - begin;
    MPI_Allreduce(MPI_IN_PLACE, &once, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    int calls = once > 0 ? (int)(0.25 / once) : CALLS;
    calls = calls < 5 ? 5 : calls > CALLS ? CALLS : calls;
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < calls; i++) {
        begin = MPI_Wtime();
        run(op, in, out, (int)count, (int)piece);
        times[i] = MPI_Wtime() - begin;
    }
    qsort(times, (size_t)calls, sizeof(double), by_value);
    const double median = times[calls / 2], n = ranks;
    const double bus = strcmp(op, "all_reduce") == 0 ? 2 * (n - 1) / n : (n - 1) / n;
    char name[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    MPI_Get_library_version(name, &length);
    if (rank == 0) {
        printf("{\"op\": \"%s\", \"ranks\": %d, \"bytes\": %ld, \"time_us\": %.3f, \"algbw_gb_s\": %.3f, "
               "\"busbw_gb_s\": %.3f, \"algorithm\": \"%.*s\"}\n",
               op, ranks, bytes, median * 1e6, (double)bytes / median / 1e9, (double)bytes / median / 1e9 * bus,
               (int)strcspn(name, ","), name);
        fflush(stdout);
    }
    free(in);
    free(out);
}

int main(int count, char **words)
{
    MPI_Init(&count, &words);
    int rank = 0, ranks = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (count != 3) {
        if (rank == 0) fprintf(stderr, "usage: mpirun -n RANKS %s OP BYTES,BYTES...\n", words[0]);
        MPI_Finalize();
        return 2;
    }
    for (char *at = words[2], *end = at; *at != '\0'; at = *end == ',' ? end + 1 : end) {
        size_run(words[1], strtol(at, &end, 10), rank, ranks);
        if (end == at) break;
    }
    MPI_Finalize();
    return 0;
}
