// One cluster of blocks on the CPU: a thread is a coroutine, and what threads do together (a
// barrier, a shuffle, a product) waits until all that take part have come. Copies and products are
// done at once, so a missing wait or fence is not seen; a wrong address, fragment, descriptor or
// count is, and so is a barrier that some thread never reaches.
#pragma once

#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <map>
#include <vector>

namespace machine {

constexpr uint32_t SHARED = 227 * 1024;
constexpr size_t STACK = 128 * 1024;
constexpr int PATIENCE = 200;  // rounds in which nothing happens

[[noreturn]] inline void fault(const char* what) {
  fprintf(stderr, "%s\n", what);
  abort();
}

struct Index {
  unsigned x;
};

// What the threads of a warp or warpgroup put down for one another, by turns in two places.
struct Meeting {
  int there = 0;
  unsigned turn = 0;
  char words[2][128][32];
};

// A barrier that threads of a known number arrive at.
struct Gate {
  int there = 0;
  unsigned turn = 0;
};

// An mbarrier.
struct Counter {
  int arrivals = 0, pending = 0;
  int64_t bytes = 0;
  unsigned phase = 0;
};

struct Block {
  int rank;
  Index index;
  char* shared;
  Meeting warps[32], groups[8];
  Gate named[16];
  std::map<uint32_t, Counter> counters;
};

struct Thread {
  ucontext_t context;
  char* stack;
  Block* block;
  Index index;
  bool done;
  const char* waits_for;
};

inline std::vector<Thread*> threads;
inline std::vector<Block*> blocks;
inline Thread* current;
inline ucontext_t scheduler;
inline Gate cluster;
inline Index grid;
inline int threads_a_block;
inline int64_t events;  // what a waiting thread may have waited for

inline void yield() { swapcontext(&current->context, &scheduler); }

template <typename Ready>
void wait(const char* what, Ready ready) {
  current->waits_for = what;
  while (!ready()) yield();
  events++;
}

inline void arrive(Gate& gate, int expected, bool waits, const char* what) {
  const unsigned turn = gate.turn;
  if (++gate.there == expected) {
    gate.there = 0;
    gate.turn++;
    events++;
  } else if (waits) {
    wait(what, [&] { return gate.turn != turn; });
  }
}

// Puts `size` bytes down and returns what all the others did.
inline const char (*meet(Meeting& at, int expected, const void* words, int size))[32] {
  const unsigned turn = at.turn;
  memcpy(at.words[turn % 2][current->index.x % expected], words, size);
  if (++at.there == expected) {
    at.there = 0;
    at.turn++;
    events++;
  } else {
    wait("threads of its warp or warpgroup", [&] { return at.turn != turn; });
  }
  return at.words[turn % 2];
}

inline const char (*meet_warp(const void* words, int size))[32] {
  return meet(current->block->warps[current->index.x / 32], 32, words, size);
}

inline const char (*meet_group(const void* words, int size))[32] {
  return meet(current->block->groups[current->index.x / 128], 128, words, size);
}

// All have read what they met for.
inline void leave_warp() { meet_warp("", 1); }
inline void leave_group() { meet_group("", 1); }

template <typename T>
T of(const char (*words)[32], int thread, int index = 0) {
  T out;
  memcpy(&out, words[thread] + index * sizeof(T), sizeof(T));
  return out;
}

inline char* at(uint32_t address) {
  if (address >= SHARED) fault("an address beyond shared memory");
  return current->block->shared + address;
}

inline Counter& counter(Block* block, uint32_t address) {
  const auto found = block->counters.find(address);
  if (found == block->counters.end()) fault("an mbarrier that was not initialised");
  return found->second;
}

inline void settle(Counter& x) {
  if (x.pending != 0 || x.bytes != 0) return;
  x.phase ^= 1;
  x.pending = x.arrivals;
  events++;
}

// What `hosted.py` writes in place of a CUtensorMap: sizes and strides in elements.
struct Map {
  char* base;
  uint64_t sizes[4], strides[3];
  uint32_t element, swizzled, box[4];
};

inline Map read(const CUtensorMap& map) {
  Map out;
  memcpy(&out, &map, sizeof out);
  return out;
}

inline uint32_t bytes(const CUtensorMap& map) {
  const Map m = read(map);
  return m.box[0] * m.box[1] * m.box[2] * m.box[3] * m.element;
}

inline void copy_box(const CUtensorMap& map, char* shared, uint32_t address, int x, int y, int z,
                     int w, bool load) {
  const Map m = read(map);
  if (address % (m.swizzled ? 1024 : 128)) fault("a box at an address that is not aligned");
  const int64_t first[4] = {x, y, z, w};
  uint32_t i[4], to = address;
  for (i[3] = 0; i[3] < m.box[3]; i[3]++) {
    for (i[2] = 0; i[2] < m.box[2]; i[2]++) {
      for (i[1] = 0; i[1] < m.box[1]; i[1]++) {
        for (i[0] = 0; i[0] < m.box[0]; i[0]++, to += m.element) {
          int64_t from = 0;
          bool inside = true;
          for (int d = 0; d < 4; d++) {
            const int64_t place = first[d] + i[d];
            inside = inside && place >= 0 && place < int64_t(m.sizes[d]);
            from += place * (d ? m.strides[d - 1] : 1);
          }
          char* here = shared + (m.swizzled ? to ^ ((to >> 7 & 7) << 4) : to);
          char* there = m.base + from * m.element;
          if (load && inside) memcpy(here, there, m.element);
          if (load && !inside) memset(here, 0, m.element);
          if (!load && inside) memcpy(there, here, m.element);
        }
      }
    }
  }
}

inline void load(Block* block, uint32_t to, const CUtensorMap& map, uint32_t full, int x, int y,
                 int z, int w) {
  copy_box(map, block->shared, to, x, y, z, w, true);
  Counter& heard = counter(block, full);
  heard.bytes -= bytes(map);
  settle(heard);
}

template <typename Parameters>
struct Launch {
  static inline void (*kernel)(Parameters);
  static inline Parameters parameters;
  static void enter() {
    kernel(parameters);
    current->done = true;
    events++;
    yield();
  }
};

// Every cluster to its end, one after another. 1 where one is stuck.
template <typename Parameters>
int launch(void (*kernel)(Parameters), const void* parameters, unsigned count, int threads_each,
           int cluster_size) {
  using Here = Launch<Parameters>;
  Here::kernel = kernel;
  memcpy(static_cast<void*>(&Here::parameters), parameters, sizeof(Parameters));
  grid = {count};
  threads_a_block = threads_each;
  const size_t needed = size_t(threads_each) * cluster_size;
  while (threads.size() < needed) {
    threads.push_back(new Thread());
    threads.back()->stack = static_cast<char*>(malloc(STACK));
  }
  for (unsigned first = 0; first < count; first += cluster_size) {
    cluster = Gate();
    for (int rank = 0; rank < cluster_size; rank++) {
      Block* block = new Block();
      block->rank = rank;
      block->index = {first + rank};
      block->shared = static_cast<char*>(aligned_alloc(1024, SHARED));
      memset(block->shared, 0xff, SHARED);  // NaN, should anyone read it
      blocks.push_back(block);
    }
    for (size_t i = 0; i < needed; i++) {
      Thread* t = threads[i];
      t->block = blocks[i / threads_each];
      t->index = {unsigned(i % threads_each)};
      t->done = false;
      getcontext(&t->context);
      t->context.uc_stack.ss_sp = t->stack;
      t->context.uc_stack.ss_size = STACK;
      t->context.uc_link = &scheduler;
      makecontext(&t->context, Here::enter, 0);
    }
    int64_t seen = -1;
    int idle = 0;
    for (bool running = true; running;) {
      running = false;
      for (size_t i = 0; i < needed; i++) {
        if (threads[i]->done) continue;
        running = true;
        current = threads[i];
        swapcontext(&scheduler, &current->context);
      }
      idle = events == seen ? idle + 1 : 0;
      seen = events;
      if (idle < PATIENCE) continue;
      for (size_t i = 0; i < needed; i += 32) {
        if (threads[i]->done) continue;
        fprintf(stderr, "block %u, warp %u waits for %s\n", threads[i]->block->index.x,
                threads[i]->index.x / 32, threads[i]->waits_for);
      }
      return 1;
    }
    for (Block* block : blocks) {
      free(block->shared);
      delete block;
    }
    blocks.clear();
  }
  return 0;
}

}  // namespace machine
