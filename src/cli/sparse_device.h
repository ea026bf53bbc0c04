// The tensors of a sparse run on the device that it runs on, and its results back.
//
//   RunOnDevice run(device, arguments);       // of the host
//   run.operate(op);                          // waits for it
//   run.fetch("C");
#pragma once

#include <map>
#include <string>

#include "weft/device.h"
#include "weft/sparse.h"

namespace weft::cli {

class RunOnDevice {
 public:
  // `host` lies in memory of the host, which stays; on the CPU it is what runs.
  RunOnDevice(Device device, const sparse::RunArguments& host);
  void operate(const sparse::Operator& op) const { op.run(there_, stream_), stream_.synchronize(); }
  void set_values_unchanged() { there_.values_unchanged = true; }
  // What the host has of a tensor goes there; what is there comes to the host.
  void send(const std::string& buffer) const;
  void fetch(const std::string& buffer) const;

 private:
  const Device device_;
  const Stream stream_;
  const sparse::RunArguments& host_;
  sparse::RunArguments there_;
  std::map<std::string, Workspace> memory_ = {};  // on a card
};

}  // namespace weft::cli
