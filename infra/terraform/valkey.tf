resource "google_memorystore_instance" "buffer" {
  instance_id    = var.name
  location       = var.region
  engine_version = "VALKEY_9_0"
  node_type      = var.valkey_node_type
  # The buffer keeps a session's keys together, so it can grow into a cluster (and `?cluster=true`) later.
  mode          = "CLUSTER_DISABLED"
  shard_count   = 1
  replica_count = var.valkey_replicas

  authorization_mode      = "IAM_AUTH"
  transit_encryption_mode = "SERVER_AUTHENTICATION"

  # A lost buffer is rebuilt from AlloyDB, but a turn that is not in it yet exists nowhere else for seconds.
  persistence_config {
    mode = "AOF"
    aof_config {
      append_fsync = "EVERY_SEC"
    }
  }

  # It holds sessions in progress and a TTL ends each: to evict one early would lose turns.
  engine_configs = {
    "maxmemory-policy" = "noeviction"
  }

  desired_auto_created_endpoints {
    network    = google_compute_network.this.id
    project_id = var.project
  }

  deletion_protection_enabled = var.deletion_protection
  depends_on                  = [google_network_connectivity_service_connection_policy.valkey]
}

locals {
  valkey_connections = flatten(google_memorystore_instance.buffer.endpoints[*].connections[*].psc_auto_connection)
  # The reader's endpoint refuses writes.
  valkey_primary = one([
    for each in local.valkey_connections : each if each.connection_type == "CONNECTION_TYPE_PRIMARY"
  ])
  valkey_authorities = flatten(google_memorystore_instance.buffer.managed_server_ca[*].ca_certs[*].certificates)
  # The instance has an authority of its own; its certificates are public, and travel in the URL.
  valkey_url = join("", [
    "valkeys://${local.valkey_primary.ip_address}:6379/0?ssl_ca_data=",
    urlencode(join("\n", [for each in local.valkey_authorities : trimspace(each)])),
  ])
}
