// The algorithms. Where no tuning table says otherwise, the first row that fits is taken.
#include "comm/algo/algo_table.h"

#include <string.h>

const comm_algorithm *const comm_algorithm_table[] = {
    &comm_algorithm_all_reduce_direct,     &comm_algorithm_all_reduce_direct_rank,
    &comm_algorithm_reduce_direct,         &comm_algorithm_reduce_direct_rank,
    &comm_algorithm_reduce_scatter_direct, &comm_algorithm_reduce_scatter_direct_rank,
    &comm_algorithm_all_gather_direct,     &comm_algorithm_broadcast_direct,
    &comm_algorithm_gather_direct,         &comm_algorithm_scatter_direct,
    &comm_algorithm_all_to_all_direct,     &comm_algorithm_all_to_allv_direct,
    &comm_algorithm_barrier_direct,        &comm_algorithm_send_message,
    &comm_algorithm_receive_message,
};

int comm_algorithm_count(void)
{
    return (int)COUNT_OF(comm_algorithm_table);
}

const comm_algorithm *comm_algorithm_find(comm_op op, const char *name)
{
    for (int i = 0; i < comm_algorithm_count(); i++) {
        const comm_algorithm *a = comm_algorithm_table[i];
        if (a->op == op && strcmp(a->name, name) == 0) return a;
    }
    return NULL;
}
