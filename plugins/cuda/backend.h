/* backend.h -- the functions of the table, by file. Contracts: minerva/plugin.h. */
#ifndef CU_BACKEND_H
#define CU_BACKEND_H
#include "cu.h"
/* facts.c */
mn_status cu_device_count(void *, uint32_t *, mn_error *);
mn_status cu_device_info(void *, uint32_t, mn_device_info *, mn_error *);
mn_status cu_device_open(void *, uint32_t, mn_device **, mn_error *);
void cu_device_close(mn_device *);
mn_status cu_device_memory(mn_device *, uint64_t *, uint64_t *, mn_error *);
mn_status cu_self_test(mn_device *, mn_error *);
/* memory.c */
mn_status cu_alloc(mn_device *, uint64_t, uint32_t, mn_buffer **, mn_error *);
mn_status cu_wrap(mn_device *, void *, uint64_t, mn_buffer **, mn_error *);
void cu_buffer_free(mn_buffer *);
mn_status cu_map(mn_buffer *, void **, mn_error *);
mn_status cu_queue_create(mn_device *, mn_queue **, mn_error *);
void cu_queue_free(mn_queue *);
mn_status cu_write(mn_queue *, mn_buffer *, uint64_t, const void *, uint64_t, mn_error *);
mn_status cu_read(mn_queue *, const mn_buffer *, uint64_t, mn_buffer *, uint64_t, uint64_t,
                  mn_event **, mn_error *);
mn_status cu_copy(mn_queue *, mn_buffer *, uint64_t, const mn_buffer *, uint64_t, uint64_t,
                  mn_event **, mn_error *);
mn_status cu_wait_event(mn_event *, uint64_t, mn_error *);
mn_status cu_queue_wait(mn_queue *, mn_event *, mn_error *);
void cu_event_free(mn_event *);
mn_status cu_abort(mn_queue *);
/* weights.c */
mn_status cu_weights_open(mn_device *, const mn_compile *, mn_weights **, mn_error *);
mn_status cu_weights_put(mn_weights *, mn_queue *, const mn_weight_src *, mn_event **, mn_error *);
mn_status cu_weights_seal(mn_weights *, mn_queue *, uint32_t *, mn_error *);
void cu_weights_free(mn_weights *);
/* kv.c */
mn_status cu_kv_layout(mn_device *, const mn_compile *, uint32_t, mn_kv_layout *, mn_error *);
mn_status cu_kv_copy(mn_queue *, mn_buffer *, const mn_kv_layout *, const mn_page_copy *, uint32_t,
                     uint32_t, mn_event **, mn_error *);
/* verdict.c */
mn_status cu_contracts(void *, const uint32_t (**)[2], uint32_t *);
mn_status cu_supports(mn_device *, const mn_graph *, const int64_t *, mn_verdict *, uint32_t,
                      mn_error *);
mn_status cu_reason(void *, uint32_t, char *, uint32_t);
/* 0 = can, else a reason */
uint32_t cu_verdict(const mn_device *, const mn_graph *, uint32_t node);
const char *cu_reason_text(uint32_t reason);
/* program.c, context.c */
mn_status cu_estimate(mn_device *, const mn_compile *, mn_estimate *, mn_error *);
mn_status cu_compile(mn_device *, const mn_compile *, mn_program **, mn_error *);
void cu_program_free(mn_program *);
mn_status cu_program_save(const mn_program *, void *, uint64_t *);
mn_status cu_context_create(mn_program *, mn_queue *, mn_context **, mn_error *);
mn_status cu_context_bind(mn_context *, uint32_t, const mn_binding *, uint32_t, uint32_t,
                          mn_error *);
mn_status cu_context_prepare(mn_context *, uint32_t, const int64_t *, mn_error *);
mn_status cu_execute(mn_context *, uint32_t, const int64_t *, mn_event **, mn_error *);
void cu_context_free(mn_context *);
#endif
