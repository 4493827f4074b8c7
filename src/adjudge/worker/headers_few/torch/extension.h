// As `types.h` beside this: what declares tensors, and what carries them to and from Python.
#pragma once

#include <torch/types.h>

#ifndef __CUDACC__
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/python_headers.h>
#include <torch/csrc/utils/pybind.h>
#endif

#include <algorithm>
#include <cmath>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>
#include <vector>
