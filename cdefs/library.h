/* The loaded library itself: its version, instruction set, primitive cache and diagnostics. */

#define DNNL_RUNTIME_SEQ 1
#define DNNL_RUNTIME_OMP 2

typedef struct {
    int major;
    int minor;
    int patch;
    const char *hash;
    unsigned cpu_runtime;
    unsigned gpu_runtime;
} dnnl_version_t;

typedef enum {
    dnnl_cpu_isa_default = 0,
    dnnl_cpu_isa_sse41 = 0x1,
    dnnl_cpu_isa_avx = 0x3,
    dnnl_cpu_isa_avx2 = 0x7,
    dnnl_cpu_isa_avx2_vnni = 0xf,
    dnnl_cpu_isa_avx2_vnni_2 = 0x1f,
    dnnl_cpu_isa_avx512_core = 0x27,
    dnnl_cpu_isa_avx512_core_vnni = 0x67,
    dnnl_cpu_isa_avx512_core_bf16 = 0xe7,
    dnnl_cpu_isa_avx512_core_fp16 = 0x1ef,
    dnnl_cpu_isa_avx512_core_amx = 0xfef,
    dnnl_cpu_isa_avx512_core_amx_fp16 = 0x1fef
} dnnl_cpu_isa_t;

const dnnl_version_t *dnnl_version(void);
dnnl_status_t dnnl_set_max_cpu_isa(dnnl_cpu_isa_t isa);
dnnl_cpu_isa_t dnnl_get_effective_cpu_isa(void);
dnnl_status_t dnnl_get_primitive_cache_capacity(int *capacity);
dnnl_status_t dnnl_set_primitive_cache_capacity(int capacity);
dnnl_status_t dnnl_set_verbose(int level);
