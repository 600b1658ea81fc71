#!/bin/bash
# Install spark_cas on each node of a cluster of Databricks. The cluster runs this script as an init script. The folder
# has the wheel, and the file of conf/platforms for the runtime, so that pip keeps the packages of the runtime.
set -euo pipefail

folder=${SPARK_CAS_FOLDER:-/Volumes/main/default/libraries}
/databricks/python/bin/pip install --quiet --constraint "$folder"/databricks-18.txt "$folder"/spark_cas-*.whl
