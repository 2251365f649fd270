"""Version 1 of the administration interface: `admin.proto` is its documentation, the rest is generated from it by

python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. --grpc_python_out=. deploy/admin/v1/admin.proto
"""
