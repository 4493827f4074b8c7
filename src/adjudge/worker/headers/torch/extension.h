// Found in place of torch's own header of this name, which also brings the C++ frontend (modules,
// optimisers, data loaders): compilers read that for half a minute, and extensions call operations.
#pragma once

#include <torch/types.h>
#include <torch/version.h>

#ifndef __CUDACC__
#include <torch/utils.h>

#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/python_headers.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/utils/python_numbers.h>
#include <torch/csrc/utils/python_tuples.h>
#endif

#include <algorithm>
#include <cmath>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>
#include <vector>
