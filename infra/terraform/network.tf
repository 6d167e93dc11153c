resource "google_compute_network" "this" {
  name                    = var.name
  auto_create_subnetworks = false
  depends_on              = [google_project_service.api]
}

# Cloud Run takes its addresses from here, and Memorystore its endpoints.
resource "google_compute_subnetwork" "this" {
  name                     = var.name
  region                   = var.region
  network                  = google_compute_network.this.id
  ip_cidr_range            = "10.80.0.0/22"
  private_ip_google_access = true
}

# AlloyDB is reached through a peering with Google's network.
resource "google_compute_global_address" "alloydb" {
  name          = "${var.name}-alloydb"
  network       = google_compute_network.this.id
  purpose       = "VPC_PEERING"
  address_type  = "INTERNAL"
  prefix_length = 20
}

resource "google_service_networking_connection" "alloydb" {
  network                 = google_compute_network.this.id
  service                 = "servicenetworking.googleapis.com"
  reserved_peering_ranges = [google_compute_global_address.alloydb.name]
}

# Memorystore is reached through Private Service Connect, which this lets it set up.
resource "google_network_connectivity_service_connection_policy" "valkey" {
  name          = "${var.name}-valkey"
  location      = var.region
  network       = google_compute_network.this.id
  service_class = "gcp-memorystore"
  psc_config {
    subnetworks = [google_compute_subnetwork.this.id]
  }
}
