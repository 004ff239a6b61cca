/* The recurrence over levels by hand, as a yardstick: Threefry-2x32-20 and Box-Muller with the numbers of
   prism_jax/graph/draws.py, every member of a group drawn, AVX-512. One chunk is WIDTH columns; columns k and
   k + PAIRS share a pair of draws. Arrays are those of GraphArrays (prism_jax/graph/propagate.py), row-major. */
#include <immintrin.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifndef PAIRS
#define PAIRS 64
#endif
#define WIDTH (2 * PAIRS)
#define MAX_LANES 64
#define COUNTER_LANES 2048  /* places of the counter: member, lane, pair */
#define COUNTER_PAIRS 1024

static float SINE[5], COSINE[6], LOGARITHM[8];

void constants(const float *sine, const float *cosine, const float *logarithm) {
  memcpy(SINE, sine, sizeof SINE);
  memcpy(COSINE, cosine, sizeof COSINE);
  memcpy(LOGARITHM, logarithm, sizeof LOGARITHM);
}

#define ROUND(r)                  \
  x0 = _mm512_add_epi32(x0, x1);  \
  x1 = _mm512_xor_si512(_mm512_rol_epi32(x1, r), x0);
#define KEYS(a, b, j)            \
  x0 = _mm512_add_epi32(x0, a);  \
  x1 = _mm512_add_epi32(x1, _mm512_add_epi32(b, _mm512_set1_epi32(j)));
#define EVEN ROUND(13) ROUND(15) ROUND(26) ROUND(6)
#define ODD ROUND(17) ROUND(29) ROUND(16) ROUND(24)

static inline __m512 horner(__m512 x, const float *coefficient, int n) {
  __m512 value = _mm512_set1_ps(coefficient[n - 1]);
  for (int k = n - 2; k >= 0; k--) value = _mm512_fmadd_ps(value, x, _mm512_set1_ps(coefficient[k]));
  return value;
}

/* PAIRS pairs of standard normals. */
static inline void normal_pairs(uint32_t k0, uint32_t k1, uint32_t place, uint32_t level, float *restrict first,
                                float *restrict second) {
  const __m512i key0 = _mm512_set1_epi32(k0), key1 = _mm512_set1_epi32(k1);
  const __m512i key2 = _mm512_set1_epi32(k0 ^ k1 ^ 0x1BD11BDAu);
  const __m512i iota = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512 one = _mm512_set1_ps(1.0f);
  for (int j = 0; j < PAIRS; j += 16) {
    __m512i x0 = _mm512_add_epi32(_mm512_add_epi32(iota, _mm512_set1_epi32(place + j)), key0);
    __m512i x1 = _mm512_add_epi32(_mm512_set1_epi32(level), key1);
    EVEN KEYS(key1, key2, 1) ODD KEYS(key2, key0, 2) EVEN KEYS(key0, key1, 3) ODD KEYS(key1, key2, 4) EVEN KEYS(key2, key0, 5)
    /* -log of a uniform, by exponent and mantissa */
    __m512i bits = _mm512_castps_si512(_mm512_add_ps(_mm512_cvtepu32_ps(x0), _mm512_set1_ps(0.5f)));
    __m512 doublings = _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_set1_epi32(159), _mm512_srli_epi32(bits, 23)));
    __m512i mantissa = _mm512_or_si512(_mm512_and_si512(bits, _mm512_set1_epi32(0x7FFFFF)), _mm512_set1_epi32(0x3F800000));
    __m512 s = _mm512_sub_ps(_mm512_castsi512_ps(mantissa), one);
    __m512 exponential = _mm512_mul_ps(doublings, _mm512_set1_ps(0.69314718f));
    exponential = _mm512_max_ps(_mm512_fnmadd_ps(s, horner(s, LOGARITHM, 8), exponential), _mm512_setzero_ps());
    __m512 radius = _mm512_sqrt_ps(_mm512_add_ps(exponential, exponential));
    __m512 turn = _mm512_mul_ps(_mm512_cvtepi32_ps(x1), _mm512_set1_ps(2.3283064e-10f)), y = _mm512_mul_ps(turn, turn);
    __m512 sine = _mm512_mul_ps(horner(y, SINE, 5), turn), twice = _mm512_add_ps(sine, sine);
    _mm512_storeu_ps(first + j, _mm512_mul_ps(radius, _mm512_fnmadd_ps(twice, sine, one)));
    _mm512_storeu_ps(second + j, _mm512_mul_ps(radius, _mm512_mul_ps(twice, horner(y, COSINE, 6))));
  }
}

typedef struct {
  int n_level, n_lane, n_factor, n_member, n_dep, depth, n_axis, n_knot; /* n_knot < 0: no residual of communication */
  float call_slope, p2p_sd;                                             /* call_slope 0: no residual of compute */
  const float *compute_s, *call_sd, *comm_s, *comm_sd, *lag_s, *end_compute_s, *end_comm_s;
  const int32_t *dep;
  const float *regime; /* [axis of comm_s, then p2p, end] */
  const float *chain;  /* offset, slope, knots, bends of communication */
} Graph;

/* Slowest member of one op of a lane, added to nothing: duration [WIDTH]. */
static void slowest(const Graph *g, const float *parts, float sd, const float *chip, int lane, int level, const uint32_t *key,
                    float *restrict duration) {
  float draws[WIDTH] __attribute__((aligned(64)));
  const size_t factor_stride = (size_t)g->n_member * g->n_lane * WIDTH;
  const int varies = sd != 0.0f;
  memset(duration, 0, sizeof(float) * WIDTH);
  for (int member = 0; member < g->n_member; member++) {
    const float *own = chip + ((size_t)member * g->n_lane + lane) * WIDTH;
    if (varies)
      normal_pairs(key[0], key[1], ((uint32_t)member * COUNTER_LANES + lane) * COUNTER_PAIRS, level, draws, draws + PAIRS);
    if (g->n_factor == 2) { /* the usual case, in one pass */
      const float *other = own + factor_stride, a = parts[0], b = parts[1], constant = parts[2];
      for (int c = 0; c < WIDTH; c++) {
        float seconds = constant + a * own[c] + b * other[c];
        if (varies) seconds *= 1.0f + sd * draws[c];
        duration[c] = duration[c] > seconds ? duration[c] : seconds;
      }
      continue;
    }
    for (int c = 0; c < WIDTH; c++) {
      float seconds = parts[g->n_factor];
      for (int f = 0; f < g->n_factor; f++) seconds += parts[f] * own[f * factor_stride + c];
      if (varies) seconds *= 1.0f + sd * draws[c];
      duration[c] = duration[c] > seconds ? duration[c] : seconds;
    }
  }
}

static void comm_residual(const Graph *g, int lane, int level, const uint32_t *key, float *restrict value) {
  float score[WIDTH] __attribute__((aligned(64)));
  if (g->n_knot < 0) {
    memset(value, 0, sizeof(float) * WIDTH);
    return;
  }
  uint32_t member = g->call_slope != 0.0f ? g->n_member : 0;
  normal_pairs(key[0], key[1], (member * COUNTER_LANES + lane) * COUNTER_PAIRS, level, score, score + PAIRS);
  for (int c = 0; c < WIDTH; c++) value[c] = g->chain[0] + g->chain[1] * score[c];
  for (int k = 0; k < g->n_knot; k++) {
    const float knot = g->chain[2 + k], bend = g->chain[2 + g->n_knot + k];
    for (int c = 0; c < WIDTH; c++) value[c] += bend * (score[c] > knot ? score[c] - knot : 0.0f);
  }
}

/* ring [depth * lane + 1][WIDTH], its last row zero; end [WIDTH] of the step. */
static void chunk(const Graph *g, const float *chip, const uint32_t *key, float *restrict ring, float *restrict end) {
  static float free_s[MAX_LANES][WIDTH] __attribute__((aligned(64))), next[MAX_LANES][WIDTH] __attribute__((aligned(64)));
  float duration[WIDTH], residual[WIDTH];
  memset(free_s, 0, sizeof free_s);
  memset(ring + (size_t)g->depth * g->n_lane * WIDTH, 0, sizeof(float) * WIDTH);
  for (int level = 0; level < g->n_level; level++) {
    for (int lane = 0; lane < g->n_lane; lane++) {
      const size_t op = (size_t)level * g->n_lane + lane;
      slowest(g, g->compute_s + op * (g->n_factor + 1), g->call_sd[op] * g->call_slope, chip, lane, level, key, duration);
      comm_residual(g, lane, level, key, residual);
      float comm_s = 0.0f, *at = next[lane];
      for (int a = 0; a < g->n_axis; a++) comm_s += g->comm_s[op * g->n_axis + a] * g->regime[a];
      memcpy(at, free_s[lane], sizeof free_s[lane]);
      for (int d = 0; d < g->n_dep; d++) {
        const float *before = ring + (size_t)g->dep[op * g->n_dep + d] * WIDTH;
        const float lag_s = g->lag_s[op * g->n_dep + d] * g->regime[g->n_axis];
        for (int c = 0; c < WIDTH; c++) {
          float arrival = before[c] + lag_s * (1.0f + g->p2p_sd * residual[c]);
          at[c] = at[c] > arrival ? at[c] : arrival;
        }
      }
      for (int c = 0; c < WIDTH; c++) at[c] += duration[c] + comm_s * (1.0f + g->comm_sd[op] * residual[c]);
    }
    memcpy(free_s, next, (size_t)g->n_lane * sizeof free_s[0]);
    memcpy(ring + (size_t)(level % g->depth) * g->n_lane * WIDTH, next, (size_t)g->n_lane * sizeof next[0]);
  }
  memset(end, 0, sizeof(float) * WIDTH);
  for (int lane = 0; lane < g->n_lane; lane++) {
    slowest(g, g->end_compute_s + (size_t)lane * (g->n_factor + 1), 0.0f, chip, lane, 0, key, duration);
    const float last_s = g->end_comm_s[lane] * g->regime[g->n_axis + 1];
    for (int c = 0; c < WIDTH; c++) {
      float at = free_s[lane][c] + duration[c] + last_s;
      end[c] = end[c] > at ? end[c] : at;
    }
  }
}

/* chip [chunk][factor][member][lane][WIDTH], keys [chunk][2] -> end [chunk][WIDTH] */
int run_chunks(int n_chunk, const Graph *g, const float *chip, const uint32_t *keys, float *end) {
  if (g->n_lane > MAX_LANES) return 1;
  float *ring = aligned_alloc(64, ((size_t)g->depth * g->n_lane + 1) * WIDTH * sizeof(float));
  if (!ring) return 1;
  const size_t chip_stride = (size_t)g->n_factor * g->n_member * g->n_lane * WIDTH;
  for (int k = 0; k < n_chunk; k++) chunk(g, chip + k * chip_stride, keys + 2 * k, ring, end + (size_t)k * WIDTH);
  free(ring);
  return 0;
}
