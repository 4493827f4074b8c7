// Of CUDA's header, what the kernels' sources name.
#pragma once

#include <stdint.h>

struct alignas(64) CUtensorMap {
  uint64_t words[16];
};
